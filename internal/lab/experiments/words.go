package experiments

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// chinese has a line with the name of an experiment, or with an experiment and its part, and below it, after a tab
// each, its title and what it claims, or what is done in it and what is expected.
//
//go:embed chinese.txt
var chinese string

func chineseOf(name string) (first, second string) {
	_, found, _ := strings.Cut("\n"+chinese, "\n"+name+"\n\t")
	first, found, _ = strings.Cut(found, "\n\t")
	second, _, _ = strings.Cut(found, "\n")
	return first, second
}

// Words are the title and the claim of an experiment.
type Words struct {
	Title string `json:"title"`
	Claim string `json:"claim"`
}

// Chinese has those of each experiment in Chinese, by its name.
func Chinese() map[string]Words {
	all := make(map[string]Words)
	for _, e := range All() {
		var w Words
		w.Title, w.Claim = chineseOf(e.Name)
		all[e.Name] = w
	}
	return all
}

// PartWords are what is done in a part of an experiment, what is expected, and what was found.
type PartWords struct {
	Does   string `json:"does"`
	Expect string `json:"expect"`
	Says   string `json:"says,omitempty"`
}

// ChinesePart is what a part does and expects in Chinese, or empty where there are no words for it.
func ChinesePart(experiment, part string) (w PartWords) {
	w.Does, w.Expect = chineseOf(experiment + "/" + part)
	return w
}

// Line is what a narrator says of a moment of an experiment, in both languages of the page. It has
// places for {who}, {other} and {n}, and $1, $2 for the groups of its pattern.
type Line struct {
	// Moment is one that the page finds in the leases or the stock; otherwise it is empty.
	Moment string `json:"moment,omitempty"`
	// Mark is a pattern for marks, which the parts write, or empty.
	Mark    string `json:"mark,omitempty"`
	English string `json:"en"`
	Chinese string `json:"zh"`
}

//go:embed narration.json
var narration []byte

// Narration has a line for each moment, and for each mark of the experiments. The first that fits counts.
func Narration() (lines []Line) {
	if err := json.Unmarshal(narration, &lines); err != nil {
		panic(err) // it is embedded
	}
	return lines
}

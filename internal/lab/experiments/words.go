package experiments

import (
	_ "embed"
	"encoding/json"
	"strings"
)

var (
	//go:embed english.txt
	english string
	//go:embed chinese.txt
	chinese string
)

// fill puts the lines below a name into fields, as far as there are both.
func fill(text, name string, fields ...*string) {
	_, below, _ := strings.Cut(text, "\n"+name+"\n")
	for _, field := range fields {
		line, rest, _ := strings.Cut(below, "\n")
		words, ok := strings.CutPrefix(line, "\t")
		if !ok {
			return
		}
		*field, below = words, rest
	}
}

// Words are those of an experiment.
type Words struct {
	Title  string `json:"title"`
	Claim  string `json:"claim"`
	Why    string `json:"why,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// Chinese has those of an experiment in Chinese.
func Chinese(experiment string) (w Words) {
	fill(chinese, experiment, &w.Title, &w.Claim, &w.Why, &w.Advice)
	return w
}

// PartWords are what is done in a part of an experiment, what is expected, and what was found.
type PartWords struct {
	Does   string `json:"does"`
	Expect string `json:"expect"`
	Says   string `json:"says,omitempty"`
}

// ChinesePart is what a part does and expects in Chinese, or empty where there are no words for it.
func ChinesePart(experiment, part string) (w PartWords) {
	fill(chinese, experiment+"/"+part, &w.Does, &w.Expect)
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

//go:embed code.json
var code []byte

// Code is the files of the tree in which the code of an experiment's failure is, and that of its remedy.
func Code(experiment string) (failure, remedy []string) {
	var files map[string]struct {
		Failure []string `json:"failure"`
		Remedy  []string `json:"remedy"`
	}
	if err := json.Unmarshal(code, &files); err != nil {
		panic(err) // it is embedded
	}
	return files[experiment].Failure, files[experiment].Remedy
}

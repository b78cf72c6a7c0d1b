package docs

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
)

// experiments are the names of the lab's, by number, as their pages have them.
func experiments(t *testing.T) map[int]string {
	t.Helper()
	names := make(map[int]string)
	for _, page := range files(t, ".md") {
		if found := regexp.MustCompile(`^docs/lab/(\d+)-(.+)\.md$`).FindStringSubmatch(page); found != nil {
			number, _ := strconv.Atoi(found[1])
			names[number] = found[2]
		}
	}
	return names
}

// strategies are those that a request or a command can name.
func strategies() (names []string) {
	for _, entry := range strategy.Registry() {
		names = append(names, entry.Name)
	}
	return names
}

// A link to an experiment has its number.
func TestAnExperimentIsLinkedByItsNumber(t *testing.T) {
	labelled := regexp.MustCompile(`\[(?:experiment )?(\d+)\]\(([^()\s]*)\)`)
	bare := regexp.MustCompile(`[Ee]xperiments? (\d+)`)
	known := experiments(t)
	for _, from := range files(t, ".md") {
		text := read(t, from)
		for _, found := range labelled.FindAllStringSubmatch(text, -1) {
			number, _ := strconv.Atoi(found[1])
			if page := path.Base(found[2]); strings.Contains(found[2], "lab/") && page != pageOf(number, known[number]) {
				t.Errorf("%s: %s is not experiment %d", from, found[2], number)
			}
		}
		for _, found := range bare.FindAllStringSubmatch(text, -1) {
			if number, _ := strconv.Atoi(found[1]); known[number] == "" {
				t.Errorf("%s: there is no experiment %d", from, number)
			}
		}
	}
}

func pageOf(number int, name string) string {
	digits := strconv.Itoa(number)
	return strings.Repeat("0", max(0, 2-len(digits))) + digits + "-" + name + ".md"
}

const tutorials = "docs/from-the-tutorials.md"

// What stands as code on the page of the tutorials and has the form of a strategy is one, and
// so is what its commands name.
func TestThePageOfTheTutorialsNamesWhatExists(t *testing.T) {
	text := read(t, tutorials)
	known := strategies()
	for _, found := range regexp.MustCompile("`([a-z]+(?:-[a-z]+)+)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, found[1]) {
			t.Errorf("%s: %s is no strategy", tutorials, found[1])
		}
	}
	for _, found := range regexp.MustCompile(`--strategies (\S+?)[\s`+"`]").FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(found[1], ",") {
			if !slices.Contains(known, name) {
				t.Errorf("%s: --strategies has %s, which is none", tutorials, name)
			}
		}
	}
	names := slices.Collect(maps.Values(experiments(t)))
	for _, found := range regexp.MustCompile("stocklab lab run ([a-z -]+)").FindAllStringSubmatch(text, -1) {
		for name := range strings.FieldsSeq(found[1]) {
			if !slices.Contains(names, name) {
				t.Errorf("%s: lab run %s is no experiment", tutorials, name)
			}
		}
	}
	for _, found := range regexp.MustCompile("\\[`?([a-z_.-]+)`?\\]\\(\\.\\./internal/(?:lock|service)/([^()\\s]+)\\)").FindAllStringSubmatch(text, -1) {
		isFile := path.Ext(found[1]) != ""
		if isFile && path.Base(found[2]) != found[1] || !isFile && !slices.Contains(known, found[1]) {
			t.Errorf("%s: %s, which leads to %s, is no strategy and not the name of the file", tutorials, found[1], found[2])
		}
	}
}

// Each question of the interviews has an answer, and a command that demonstrates it.
func TestEachQuestionHasItsCommand(t *testing.T) {
	const questions = 11
	text := read(t, tutorials)
	for n := 1; n <= questions; n++ {
		_, answer, found := strings.Cut(text, "\n**"+strconv.Itoa(n)+". ")
		answer, _, _ = strings.Cut(answer, "\n\n")
		if !found || !strings.Contains(answer, "`stocklab ") {
			t.Errorf("%s: question %d: %q", tutorials, n, answer)
		}
	}
	if strings.Contains(text, "\n**"+strconv.Itoa(questions+1)+". ") {
		t.Errorf("%s: there are more than %d questions", tutorials, questions)
	}
}

package experiments

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// Every experiment has its page in docs/lab, and every page its experiment.
func TestTheExperimentsAreNumberedAndHavePages(t *testing.T) {
	all := All()
	want := make([]string, 0, len(all))
	for i, e := range all {
		should.Be(t, e.Number, i+1, "the number of", e.Name)
		want = append(want, fmt.Sprintf("%02d-%s.md", e.Number, e.Name))
	}
	pages := must.Get(filepath.Glob("../../../docs/lab/[0-9]*.md"))(t)
	for i := range pages {
		pages[i] = filepath.Base(pages[i])
	}
	should.Equal(t, pages, want, "docs/lab has")
	for i, e := range all {
		page := must.Get(os.ReadFile(filepath.Join("../../../docs/lab", want[i])))(t)
		for _, words := range []string{e.Title, e.Claim} {
			if !strings.Contains(string(page), words) {
				t.Errorf("%s does not say %q: stocklab lab docs writes it again", want[i], words)
			}
		}
	}
}

// A name stands on the command line and in the path of a history.
var fit = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func TestNamesAreUniqueAndFitForFiles(t *testing.T) {
	assertNames(t, "the catalogue", All(), func(e Experiment) string { return e.Name })
	for _, e := range All() {
		assertNames(t, e.Name, e.Parts, func(p Part) string { return p.Name })
	}
}

func assertNames[T any](t *testing.T, where string, named []T, nameOf func(T) string) {
	t.Helper()
	seen := make(map[string]bool)
	for _, n := range named {
		name := nameOf(n)
		if seen[name] || !fit.MatchString(name) {
			t.Errorf("%s: the name %q is there twice, or not fit for a file", where, name)
		}
		seen[name] = true
	}
}

// A reader of an experiment must learn what is claimed by which source, what is done,
// and what is then to be seen.
func TestEveryExperimentSaysWhatItIs(t *testing.T) {
	for _, e := range All() {
		if e.Title == "" || e.Claim == "" || e.Source == "" || e.Why == "" || e.Advice == "" {
			t.Errorf("%s lacks words: %+v", e.Name, e)
		}
		for _, p := range e.Parts {
			if p.Does == "" || p.Expect == "" || p.Check == nil || p.Do == nil {
				t.Errorf("%s, %s lacks what it does, what to expect, a check or steps", e.Name, p.Name)
			}
		}
	}
}

// A remedy alone shows nothing: without the failure it is not known what it is good
// for.
func TestEveryExperimentShowsMoreThanRemedies(t *testing.T) {
	for _, e := range All() {
		if !slices.ContainsFunc(e.Parts, func(p Part) bool { return !p.Remedy }) {
			t.Errorf("%s has nothing but remedies", e.Name)
		}
	}
}

func TestExperimentsArePickedByNameOrNumberInTheirOrder(t *testing.T) {
	picked, err := Pick([]string{"reentrancy", "1", "oversell"})
	if err != nil || len(picked) != 2 || picked[0].Name != "oversell" || picked[1].Name != "reentrancy" {
		t.Errorf("%v, %v", picked, err)
	}
	if all, err := Pick([]string{"all"}); err != nil || len(all) != len(All()) {
		t.Errorf("all are %d, %v", len(all), err)
	}
}

func TestAWrongNameListsTheRightOnes(t *testing.T) {
	_, err := Pick([]string{"oversell", "hope"})
	if err == nil {
		t.Fatal("hope is taken for an experiment")
	}
	for _, e := range All() {
		if !strings.Contains(err.Error(), e.Name) {
			t.Errorf("%s is not in %q", e.Name, err)
		}
	}
}

// What happens in a part has words in both languages, with the same places in them.
func TestTheNarratorHasWordsForEachMark(t *testing.T) {
	lines := Narration()
	for _, mark := range []string{
		failpoint.Held, failpoint.Paused, failpoint.Killed, failpoint.WentOn, checker.Killed + ": it is gone", "is woken",
		string(servers.Lose) + ": GET", string(servers.LoseReply) + ": GET", string(servers.HangReply) + ": GET", string(servers.Hold) + ": GET",
		string(servers.HoldReply) + ": GET", "let go: GET", forgotten + ": the lock",
	} {
		if !slices.ContainsFunc(lines, func(l Line) bool { return l.Mark != "" && regexp.MustCompile(l.Mark).MatchString(mark) }) {
			t.Errorf("there are no words for the mark %q", mark)
		}
	}
	places := regexp.MustCompile(`\{\w+\}|\$\d`)
	for _, l := range lines {
		en, zh := places.FindAllString(l.English, -1), places.FindAllString(l.Chinese, -1)
		slices.Sort(en)
		slices.Sort(zh)
		if !slices.Equal(en, zh) || len(en) == 0 && l.Mark == "" && l.Moment == "" {
			t.Errorf("%s%s: places are %v in English and %v in Chinese", l.Moment, l.Mark, en, zh)
		}
	}
}

// Each experiment and part has its words in both languages, in its order; no words are left of one that is no more.
func TestTheWordsAreOfTheExperimentsThatThereAre(t *testing.T) {
	var want []string
	for _, e := range All() {
		want = append(want, e.Name)
		for _, p := range e.Parts {
			want = append(want, e.Name+"/"+p.Name)
		}
		if zh := Chinese(e.Name); zh.Title == "" || zh.Claim == "" || zh.Why == "" || zh.Advice == "" {
			t.Errorf("%s lacks words in Chinese: %+v", e.Name, zh)
		}
		if failure, _ := Code(e.Name); len(failure) == 0 {
			t.Errorf("%s does not say where its code is", e.Name)
		}
	}
	for _, text := range []string{english, chinese} {
		names := regexp.MustCompile(`(?m)^[a-z0-9/-]+$`).FindAllString(text, -1)
		should.Equal(t, names, want, "there are words of")
	}
}

// What each part does and expects has Chinese words, with the same names and numbers in their places.
func TestEachPartHasChineseWords(t *testing.T) {
	name := regexp.MustCompile(`[a-z]+(?:-[a-z]+)+|[0-9][0-9,.]*`) // as in redis-lua, or 2,500
	for _, e := range All() {
		for _, p := range e.Parts {
			zh := ChinesePart(e.Name, p.Name)
			for english, chinese := range map[string]string{p.Does: zh.Does, p.Expect: zh.Expect} {
				if chinese == "" {
					t.Errorf("%s/%s: %q has no Chinese words", e.Name, p.Name, english)
				}
				for _, one := range name.FindAllString(chinese, -1) {
					if !strings.Contains(english, one) {
						t.Errorf("%s/%s: %s is not in %q", e.Name, p.Name, one, english)
					}
				}
			}
		}
	}
}

package catalogue_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

// What happens in a part has words in both languages, with the same places in them.
func TestTheNarratorHasWordsForEachMark(t *testing.T) {
	lines := catalogue.Narration()
	for _, mark := range []string{
		failpoint.Held, failpoint.Paused, failpoint.Killed, failpoint.WentOn, checker.Killed + ": it is gone", checker.Crashed, "is woken",
		string(servers.Lose) + ": GET", string(servers.LoseReply) + ": GET", string(servers.HangReply) + ": GET", string(servers.Hold) + ": GET",
		string(servers.HoldReply) + ": GET", "let go: GET", step.Forgotten + ": the lock",
	} {
		if !slices.ContainsFunc(lines, func(l catalogue.Line) bool { return l.Mark != "" && regexp.MustCompile(l.Mark).MatchString(mark) }) {
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

// Each experiment has its title and what it claims in Chinese, too.
func TestEachExperimentHasChineseWords(t *testing.T) {
	words := catalogue.Chinese()
	for _, e := range catalogue.All() {
		if zh := words[e.Name]; zh.Title == "" || zh.Claim == "" {
			t.Errorf("%s has no Chinese title or claim: %+v", e.Name, zh)
		}
	}
	if len(words) != len(catalogue.All()) {
		t.Errorf("there are Chinese words for %d experiments, want %d", len(words), len(catalogue.All()))
	}
}

// What each part does and expects has Chinese words, with the same names and numbers in their places.
func TestEachPartHasChineseWords(t *testing.T) {
	name := regexp.MustCompile(`[a-z]+(?:-[a-z]+)+|[0-9][0-9,.]*`) // as in redis-lua, or 2,500
	for _, e := range catalogue.All() {
		for _, p := range e.Parts {
			zh := catalogue.ChinesePart(e.Name, p.Name)
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

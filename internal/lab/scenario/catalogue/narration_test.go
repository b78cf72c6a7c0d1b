package catalogue_test

import (
	"os"
	"path/filepath"
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

// What each part does and expects has Chinese words, with the same names and numbers in their places, and
// every line of the words is of some part.
func TestEachPartHasChineseWords(t *testing.T) {
	translator := catalogue.NewTranslator()
	name := regexp.MustCompile(`[a-z]+(?:-[a-z]+)+|[0-9][0-9,.]*`) // as in redis-lua, or 2,500
	for _, e := range catalogue.All() {
		for _, p := range e.Parts {
			zh := translator.Part(p.Does, p.Expect, "")
			for english, chinese := range map[string]string{p.Does: zh.Does, p.Expect: zh.Expect} {
				if chinese == "" || strings.ContainsAny(chinese, "${}") {
					t.Errorf("%s/%s: %q is %q in Chinese", e.Name, p.Name, english, chinese)
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

// Of the findings that the pages of the experiments have, nearly all have Chinese words: what a server says in
// words of its own has none.
func TestFindingsHaveChineseWords(t *testing.T) {
	pages, err := filepath.Glob("../../../../docs/lab/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	translator, found := catalogue.NewTranslator(), regexp.MustCompile(`(?m)^3. Found, [^:]*: (.*)\.$`)
	all, without := 0, []string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found.FindAllStringSubmatch(string(text), -1) {
			all++
			if translator.Part("", "", one[1]).Says == "" {
				without = append(without, one[1])
			}
		}
	}
	if all < 100 || len(without) > all/10 {
		t.Errorf("of %d findings these %d have no Chinese words: %q", all, len(without), without)
	}
	const finding = "1 overlap of 2 leases: replica-1 and replica-2 both held goods/43, for 506 ms; 1,000 or more were expected; tries per sale is 2.50"
	if got, want := translator.Part("", "", finding).Says, "2 次持锁中有 1 次重叠：replica-1 与 replica-2 同时持有 goods/43，长 506 ms；预期 1,000 次或更多；tries per sale = 2.50"; got != want {
		t.Errorf("%q is %q in Chinese, want %q", finding, got, want)
	}
	for english, want := range map[string]string{
		"of 3 leases that were asked for, 0 were granted; none was expected": "请求的 3 次持锁中，授予 0 次；预期一次也没有",
		"of 1 lease that second asked for, 1 were granted":                   "second 请求的 1 次持锁中，授予 1 次",
		"13 of 13 requests came to sold; 13 or more were expected":           "13 个请求中有 13 个卖出；预期 13 次或更多",
		"500 ms to 2.00 s was expected":                                      "预期 500 ms 到 2.00 s",
	} {
		if got := translator.Part("", "", english).Says; got != want {
			t.Errorf("%q is %q in Chinese, want %q", english, got, want)
		}
	}
	if got := translator.Part("", "", finding+"; the server: an error").Says; got != "" {
		t.Errorf("a finding of which a piece has no words is %q", got)
	}
}

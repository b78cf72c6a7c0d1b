package checker

import (
	"slices"
	"strings"
	"testing"
)

// What is said in one language is said in the other, of the same arguments.
func TestEveryCodeHasWordsInBothLanguages(t *testing.T) {
	for line := range strings.Lines(words) {
		code, _, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		var used [2][]string
		english, chinese := wordsOf(code)
		for i, template := range []template{english, chinese} {
			if template == "" {
				t.Errorf("%s lacks a language", code)
			}
			for _, place := range places().FindAllString(string(template), -1) {
				index, _, _ := strings.Cut(strings.Trim(place, "{}"), "|")
				used[i] = append(used[i], index)
			}
			slices.Sort(used[i])
			used[i] = slices.Compact(used[i])
		}
		if !slices.Equal(used[0], used[1]) {
			t.Errorf("%s takes %v in English and %v in Chinese", code, used[0], used[1])
		}
	}
}

// A figure is named in Chinese as a whole, or by its family, or keeps its name.
func TestFiguresHaveChineseNames(t *testing.T) {
	for name, want := range map[string]string{
		"below_zero_units": "库存为负", "first_grant_ms": "首次拿到锁用时（ms）", "holds_per_s_of_3": "3 个成员时每秒持锁次数",
		"holds_per_s_of_3_min": "3 个成员时每秒持锁次数，最少", "no_such_waits": "no such waits",
	} {
		if got := FigureInChinese(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	f := Found(true, nil, Say("figure", "units paid", 2), Say("at-most", 1))
	if got, want := f.Chinese(), "付了款的件数 = 2；预期最多 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

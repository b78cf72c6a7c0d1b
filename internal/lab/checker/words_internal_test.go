package checker

import (
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/should"
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
		should.Equal(t, used[1], used[0], "of the places in English the Chinese has", code)
	}
}

// A figure is named in Chinese as a whole, or by its family, or keeps its name.
func TestFiguresHaveChineseNames(t *testing.T) {
	for name, want := range map[string]string{
		"below_zero_units": "库存为负", "first_grant_ms": "首次拿到锁用时（ms）", "holds_per_s_of_3": "3 个成员时每秒持锁次数",
		"holds_per_s_of_3_min": "3 个成员时每秒持锁次数，最少", "no_such_waits": "no such waits",
	} {
		should.Be(t, FigureInChinese(name), want, name)
	}
	f := Found(true, nil, Say("figure", "units paid", 2), Say("at-most", 1))
	should.Be(t, f.Chinese(), "付了款的件数 = 2；预期最多 1", "in Chinese")
}

package checker

import (
	"slices"
	"strings"
	"testing"
)

// What is said in one language is said in the other, of the same arguments.
func TestEveryCodeHasWordsInBothLanguages(t *testing.T) {
	for code, w := range words() {
		var used [2][]string
		for i, template := range []template{w.english, w.chinese} {
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

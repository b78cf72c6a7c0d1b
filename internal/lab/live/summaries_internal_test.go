package live

import (
	"io/fs"
	"regexp"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
)

// The page says in Chinese what each strategy does, and nothing of one that is no more.
func TestEveryStrategyHasASummaryInChinese(t *testing.T) {
	script, err := fs.ReadFile(page, "page/summaries.js")
	if err != nil {
		t.Fatal(err)
	}
	all := strategy.Registry()
	translated, registered := make([]string, 0, len(all)), make([]string, len(all))
	for _, found := range regexp.MustCompile(`(?m)^  '?([a-z-]+)'?: '.*\p{Han}.*',$`).FindAllSubmatch(script, -1) {
		translated = append(translated, string(found[1]))
	}
	for i, entry := range all {
		registered[i] = entry.Name
	}
	slices.Sort(translated)
	slices.Sort(registered)
	if !slices.Equal(translated, registered) {
		t.Errorf("there are summaries of %v, want them of %v", translated, registered)
	}
}

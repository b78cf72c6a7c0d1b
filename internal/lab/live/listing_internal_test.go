package live

import (
	"strings"
	"testing"

	"github.com/stockd/stockd"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
)

// What is shown is where a reader would look for it: the lines of the file are those of the text.
func TestEveryStrategyHasItsOwnLines(t *testing.T) {
	for _, entry := range strategy.Registry() {
		list, err := listings(entry.Name)
		must.Do(t, err)
		file := strings.ReplaceAll(entry.Name, "-", "_") + ".go"
		if !strings.HasSuffix(list[0].Path, "/"+file) && !strings.Contains(list[0].Text, `"`+entry.Name+`"`) {
			t.Errorf("the first listing of %s neither names it nor is of %s", entry.Name, file)
		}
		for _, l := range list {
			content, err := stockd.Sources.ReadFile(l.Path)
			must.Do(t, err)
			lines := strings.SplitAfter(string(content), "\n")
			if l.Text == "" || !strings.HasPrefix(strings.Join(lines[l.Line-1:], ""), l.Text) {
				t.Errorf("%s: %s does not have this text from line %d", entry.Name, l.Path, l.Line)
			}
		}
	}
}

package live

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
)

// Each moment of the narration is one that the page looks for, by the same name.
func TestThePageFindsTheMomentsOfTheNarration(t *testing.T) {
	script, err := fs.ReadFile(page, "page/story.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range catalogue.Narration() {
		if line.Moment != "" && !strings.Contains(string(script), "'"+line.Moment+"'") {
			t.Errorf("the page never finds %q", line.Moment)
		}
	}
}

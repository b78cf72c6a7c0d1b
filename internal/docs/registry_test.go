package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/service/strategy"
)

// A strategy that disappears from its registry, or is not described, is noticed here.
func TestEveryStrategyIsDescribed(t *testing.T) {
	entries := strategy.Registry()
	registered := make([]string, len(entries))
	for i, entry := range entries {
		registered[i] = entry.Name
	}
	assertDescribed(t, "strategies.md", "## Every strategy", 2, registered)
}

func TestEveryLockIsDescribed(t *testing.T) {
	locks := registry.Locks()
	registered := make([]string, len(locks))
	for i, entry := range locks {
		registered[i] = entry.Name
	}
	assertDescribed(t, "locks.md", "## What each one guarantees", 1, registered)
}

// assertDescribed compares the names in a column of the first table below a heading with
// those that are registered.
func assertDescribed(t *testing.T, page, heading string, column int, registered []string) {
	t.Helper()
	content, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(content), heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var described []string
	for row := range strings.Lines(section) {
		cells := strings.Split(row, "|")
		if len(cells) > column {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[column], -1) {
				described = append(described, name[1])
			}
		}
	}
	slices.Sort(described)
	slices.Sort(registered)
	if !slices.Equal(described, registered) {
		t.Errorf("%s, %s describes %q, and registered are %q", page, heading, described, registered)
	}
}

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/service/strategy"
)

// registered are the names of the strategies that a request or a command can choose.
func registered() (names []string) {
	for _, entry := range strategy.Registry() {
		names = append(names, entry.Name)
	}
	return names
}

// experimentNames are the names by which the lab runs them.
func experimentNames() (names []string) {
	for _, e := range experiments.All() {
		names = append(names, e.Name)
	}
	return names
}

// The map from the tutorials names strategies and experiments that exist, and all of them, in both
// languages.
func TestTheTutorialsNameWhatExists(t *testing.T) {
	span, strategies := regexp.MustCompile("`([a-z]+(?:-[a-z]+)*)`"), regexp.MustCompile(`--strategies ([a-z,-]+)`)
	page, run := regexp.MustCompile(`\(lab/(?:\d+-|zh/\d+-\d+\.md#)([a-z-]+)(?:\.md)?\)`), regexp.MustCompile("stocklab lab run ([a-z -]+)`")
	for _, path := range []string{"docs/from-the-tutorials.md", "docs/from-the-tutorials.zh-CN.md"} {
		text := read(t, path)
		sold, ran := make(map[string]bool), make(map[string]bool)
		for _, found := range span.FindAllStringSubmatch(text, -1) {
			if name := found[1]; strings.Contains(name, "-") || slices.Contains(registered(), name) {
				sold[name] = true
			}
		}
		for _, found := range strategies.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(found[1], ",") {
				sold[name] = true
			}
		}
		for _, found := range slices.Concat(page.FindAllStringSubmatch(text, -1), run.FindAllStringSubmatch(text, -1)) {
			for name := range strings.FieldsSeq(found[1]) {
				ran[name] = true
			}
		}
		compare(t, path, "strategy", sold, registered())
		compare(t, path, "experiment", ran, experimentNames())
	}
}

// compare reports what a page names and does not exist, and what exists and is not named.
func compare(t *testing.T, path, kind string, named map[string]bool, exist []string) {
	t.Helper()
	for name := range named {
		if !slices.Contains(exist, name) {
			t.Errorf("%s: there is no %s %q", path, kind, name)
		}
	}
	for _, name := range exist {
		if !named[name] {
			t.Errorf("%s does not name the %s %q", path, kind, name)
		}
	}
}

// Every strategy and every lock is described where its reader looks for it.
func TestEveryStrategyAndLockIsDescribed(t *testing.T) {
	entries := registry.Locks()
	locks := make([]string, len(entries))
	for i, entry := range entries {
		locks[i] = entry.Name
	}
	for path, names := range map[string][]string{"docs/strategies.md": registered(), "docs/locks.md": locks} {
		text := read(t, path)
		for _, name := range names {
			if !strings.Contains(text, "| `"+name+"`") && !strings.Contains(text, ", `"+name+"`") {
				t.Errorf("%s does not describe %s", path, name)
			}
		}
	}
}

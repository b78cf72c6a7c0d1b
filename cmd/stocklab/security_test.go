package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stockd/stockd/internal/lab/hostile"
)

// Each threat names a test, which internal/docs looks for, and each attack of the lab is
// of a threat.
func TestEveryThreatHasATestAndEveryAttackAThreat(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	row, named := regexp.MustCompile(`(?m)^\| (\d+) \|.*\|([^|]*)\|$`), regexp.MustCompile("`(Test|Fuzz)[A-Z]\\w+`")
	threats := make(map[string]bool)
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		threats[found[1]] = true
		if !named.MatchString(found[2]) {
			t.Errorf("threat %s names no test", found[1])
		}
	}
	const known = 13
	if len(threats) != known {
		t.Errorf("there are %d threats, want %d", len(threats), known)
	}
	names := make(map[string]bool)
	for _, attack := range hostile.Attacks() {
		if !threats[attack.Row] {
			t.Errorf("%q is of threat %q, which there is not", attack.Name, attack.Row)
		}
		if names[attack.Name] {
			t.Errorf("%q is listed twice", attack.Name)
		}
		names[attack.Name] = true
	}
}

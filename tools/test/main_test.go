package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// spared are needs that no package of a distribution brings to every machine: what lacks them is skipped.
func spared() []string {
	return []string{"a disk that tells what is on it", "namespace", "mysql", "haproxy"}
}

// A test that lacks a server fails under -required only where it asks for it by the name that is required.
func TestWhatTestsNeedHasTheNameThatIsRequired(t *testing.T) {
	required, asked := names(append(needs(), compiler())), ""
	need := regexp.MustCompile(`\b(?:Need|Own|own|shared)\(t, (?:l, )?(?:&l\.\w+, )?"([^"]+)"`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasPrefix(path, root+"/tools/") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, found := range need.FindAllStringSubmatch(string(content), -1) {
			if !slices.Contains(required, found[1]) && !slices.Contains(spared(), found[1]) {
				t.Errorf("%s needs %q, which is none of %q", path, found[1], required)
			}
		}
		asked += string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names(needs()) {
		if !strings.Contains(asked, `"`+name+`"`) {
			t.Errorf("no test asks for %s", name)
		}
	}
}

// go test passes where -run matches nothing.
func TestAPatternThatMatchesNothingIsNoSuccess(t *testing.T) {
	for pattern, want := range map[string]bool{
		"TestGoroutines": true, "TestGoroutines/part": true, "FuzzRead": true, "TestHope": false, "Hope/TestGoroutines": false, "TestGoroutines|FuzzHope": false,
	} {
		if err := matches(t.Context(), pattern, nil, []string{root + "/internal/lab/history"}); (err == nil) != want {
			t.Errorf("-run %s: %v", pattern, err)
		}
	}
}

// A renamed test is no part of a run any more, even where the others of its pattern are.
func TestEachAlternativeMatchesATest(t *testing.T) {
	for pattern, want := range map[string]string{
		"TestA": "", "TestA|TestB": "", "^Test(A|B)$": "", "TestA|TestC": "TestC", "^Test(A|C|B)$": "^Test(C)$",
	} {
		if got, err := unmatched(alternatives(pattern), []string{"TestA", "TestB"}); got != want || err != nil {
			t.Errorf("of %s %q matches no test (%v), want %q", pattern, got, err, want)
		}
	}
	if _, err := unmatched([]string{"Test["}, nil); err == nil {
		t.Error("a pattern that is none matches")
	}
}

func TestAPatternIsTakenApart(t *testing.T) {
	for pattern, want := range map[string][]string{
		"A":              {"A"},
		"A|B|C":          {"A", "B", "C"},
		"^P(A|B)Q$":      {"^P(A)Q$", "^P(B)Q$"},
		"A(B|C(D|E))|F":  {"A(B)", "A(C(D))", "A(C(E))", "F"},
		"A/(b|c)|B":      {"A/(b)", "A/(c)", "B"},
		`A[|(]|B\|C|(D)`: {"A[|(]", `B\|C`, "(D)"},
		"(A|B)(C|D)":     {"(A)(C)", "(A)(D)", "(B)(C)", "(B)(D)"},
		"P(A|B|C)Q":      {"P(A)Q", "P(B)Q", "P(C)Q"},
	} {
		if got := alternatives(pattern); !slices.Equal(got, want) {
			t.Errorf("%s is taken apart into %q, want %q", pattern, got, want)
		}
	}
}

package planted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Planting takes long, and is for make prove. That each bug still has its place is
// seen at once: code that is changed may not leave its bug behind.
func TestEveryBugHasItsPlace(t *testing.T) {
	for _, d := range defects() {
		replaceOnce(t, filepath.Join(root, d.file), d.old, d.new)
	}
	for _, b := range breaches() {
		replaceOnce(t, filepath.Join(root, b.file), b.old, b.new)
	}
}

// replaceOnce is what is in a file, with one text for another that must occur once.
func replaceOnce(t *testing.T, path, old, instead string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), old); n != 1 {
		t.Fatalf("%q occurs %d times in %s, want once", old, n, path)
	}
	return strings.Replace(string(content), old, instead, 1)
}

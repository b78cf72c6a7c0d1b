package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
)

const root = "../.."

func TestTheListingsAreOfThisTree(t *testing.T) {
	want, err := write(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, target))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the tree has: go run ./tools/listings", target)
	}
}

func TestTheCodeOnThePagesOfTheLabIsOfThisTree(t *testing.T) {
	pages := 0
	if err := fillPages(root, func(page, want string) error {
		pages++
		got, err := os.ReadFile(page)
		if string(got) != want {
			t.Errorf("%s has other code than the tree: go run ./tools/listings", page)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(excerpts()); pages != want { // in two languages
		t.Errorf("%d pages have code, want %d", pages, want)
	}
}

// What is shown is where a reader would look for it: the lines of the file are those of the text.
func TestEveryStrategyHasItsOwnLines(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, target))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]listing
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	for _, entry := range strategy.Registry() {
		list := all[entry.Name]
		file := strings.ReplaceAll(entry.Name, "-", "_") + ".go"
		if len(list) == 0 || !strings.HasSuffix(list[0].Path, "/"+file) && !strings.Contains(list[0].Text, `"`+entry.Name+`"`) {
			t.Errorf("the first listing of %s neither names it nor is of %s", entry.Name, file)
		}
		for _, l := range list {
			file, err := os.ReadFile(filepath.Join(root, l.Path))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(file), "\n")
			if !strings.HasPrefix(strings.Join(lines[l.Line-1:], ""), l.Text) {
				t.Errorf("%s: %s does not have this text from line %d", entry.Name, l.Path, l.Line)
			}
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPicturesAreOfTheirTexts(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	texts, err := filepath.Glob(filepath.Join(folder, "*.mmd"))
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d texts (%v)", len(texts), err)
	}
	for _, text := range texts {
		mark, err := markOf(text)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(pictureOf(text))
		if err != nil || !strings.HasSuffix(string(picture), mark) {
			t.Errorf("%s is of another text (%v): go run ./tools/diagrams", pictureOf(text), err)
		}
	}
}

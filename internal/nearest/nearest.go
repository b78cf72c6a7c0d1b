// Package nearest says which known name was probably meant by a wrong one.
package nearest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Of is the known name that is nearest to a word, or empty where none is near: half of the word may differ, but not
// more than three characters.
func Of(word string, known []string) string {
	best, distance := "", min(3, utf8.RuneCountInString(word)/2)+1
	for _, name := range known {
		if d := levenshtein.ComputeDistance(word, name); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// Hint asks for the known name that is nearest to a word, in brackets; empty where none is near.
func Hint(word string, known []string) string {
	if meant := Of(word, known); meant != "" {
		return " (did you mean " + meant + "?)"
	}
	return ""
}

// Check returns an error that names every word that is not known, with the name that was probably meant. Where
// there is none for a word, it lists what is known.
func Check(what string, known []string, words ...string) error {
	var wrong []string
	list := false
	for _, word := range words {
		if slices.Contains(known, word) {
			continue
		}
		hint := Hint(word, known)
		list = list || hint == ""
		wrong = append(wrong, fmt.Sprintf("%q is not %s%s", word, what, hint))
	}
	if len(wrong) == 0 {
		return nil
	}
	says := strings.Join(wrong, ", ")
	if list {
		says += "; there are " + strings.Join(known, ", ")
	}
	return errors.New(says)
}

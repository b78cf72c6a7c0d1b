package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestATargetThatIsNotThereIsNoSuccess(t *testing.T) {
	one, two := target{"./a", "FuzzOne"}, target{"./b", "FuzzTwo"}
	all := []target{one, two}
	for only, want := range map[string][]target{".": all, "Two": {two}, "^FuzzOne$": {one}, "FuzzThree": nil} {
		got, err := matching(all, regexp.MustCompile(only))
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("--only %s: %v (%v), want %v", only, got, err, want)
		}
	}
	if _, err := matching(nil, regexp.MustCompile(".")); err == nil {
		t.Error("no target at all is a success")
	}
}

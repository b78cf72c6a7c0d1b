package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func readFile(events string, ran *[]string, skipped map[string]int) error {
	file, err := os.Open(events)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	return read(file, ran, skipped)
}

// read adds what the events of go test -json say: the names of the tests that ran, and how many were
// skipped for each reason, which is the last line that a skipped test has logged.
func read(events io.Reader, ran *[]string, skipped map[string]int) error {
	logged := regexp.MustCompile(`^\s+\w+\.go:\d+: (.*)\n`)
	reason := make(map[string]string)
	for d := json.NewDecoder(events); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) { //nolint:musttag // the names are those of go test
			return nil
		} else if err != nil {
			return fmt.Errorf("read what the tests printed: %w", err)
		}
		test := e.Package + " " + e.Test
		switch e.Action {
		case "run":
			*ran = append(*ran, e.Test)
		case "output":
			if line := logged.FindStringSubmatch(e.Output); line != nil {
				reason[test] = line[1]
			}
		case "skip":
			if e.Test != "" { // else it is a package without tests
				skipped[reason[test]]++
			}
		}
	}
}

func printSkipped(out io.Writer, skipped map[string]int) {
	reasons := slices.SortedFunc(maps.Keys(skipped), func(a, b string) int {
		return cmp.Or(skipped[b]-skipped[a], strings.Compare(a, b))
	})
	for _, reason := range reasons {
		fmt.Fprintf(out, "SKIPPED %5d  %s\n", skipped[reason], reason) //nolint:errcheck // the exit status tells what matters
	}
}

// mustMatch requires that each alternative of a pattern has run a test: one that is misspelled, or
// whose test has been renamed, would pass. What is in parentheses is not looked at by itself.
func mustMatch(pattern string, ran []string) error {
	depth := 0
	alternatives := strings.FieldsFunc(pattern, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == '|' && depth == 0
	})
	for _, one := range alternatives {
		if !slices.ContainsFunc(ran, func(name string) bool { return matches(one, name) }) {
			return fmt.Errorf("-run %s: %s matches no test", pattern, one)
		}
	}
	return nil
}

// matches compares level by level, as go test does.
func matches(pattern, name string) bool {
	names := strings.Split(name, "/")
	for i, level := range strings.Split(pattern, "/") {
		if ok, err := regexp.MatchString(level, names[min(i, len(names)-1)]); !ok || err != nil || i >= len(names) {
			return false
		}
	}
	return true
}

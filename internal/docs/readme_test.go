package docs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"
)

// readmes are the same page in two languages.
var readmes = []string{"README.md", "README.zh-CN.md"}

// The bounds of a README: bytes, and links of its map.
const (
	readmeBytes = 12 << 10
	mapLinks    = 12
)

func TestAReadmeIsShort(t *testing.T) {
	for _, path := range readmes {
		text := read(t, path)
		if len(text) > readmeBytes {
			t.Errorf("%s has %d bytes: at most %d", path, len(text), readmeBytes)
		}
		sections := regexp.MustCompile(`(?m)^## `).Split(text, -1)
		if n := len(link.FindAllString(sections[len(sections)-1], -1)); n == 0 || n > mapLinks {
			t.Errorf("the last section of %s is its map, with 1 to %d links, and has %d", path, mapLinks, n)
		}
		for _, other := range readmes {
			if other != path && !strings.Contains(text, "]("+other+")") {
				t.Errorf("%s has no link to %s", path, other)
			}
		}
	}
}

// The commands of both pages are the same: a test runs those of the first. Comments are
// in the language of the page.
func TestTheReadmesHaveTheSameCommands(t *testing.T) {
	comment := regexp.MustCompile(`(?m)[ \t]+#.*$`)
	var first []string
	for i, path := range readmes {
		blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(read(t, path), -1)
		commands := make([]string, len(blocks))
		for n, block := range blocks {
			commands[n] = comment.ReplaceAllString(block[1], "")
		}
		if i == 0 {
			first = commands
		}
		if len(commands) == 0 || !slices.Equal(commands, first) {
			t.Errorf("%s has the commands\n%s\nand %s has\n%s", path, strings.Join(commands, "\n"), readmes[0], strings.Join(first, "\n"))
		}
	}
}

// sold is a run of docs/demo.json as far as it is quoted.
type sold struct {
	Strategy  string  `json:"strategy"`
	Replicas  int     `json:"replicas"`
	Group     bool    `json:"group"`
	Clients   int     `json:"clients"`
	Sold      int64   `json:"sold"`
	Left      int64   `json:"left"`
	Oversold  int64   `json:"oversold"`
	Lost      int64   `json:"lost"`
	PerSecond float64 `json:"per_second"`
}

// cells are the figures of a row, from the number of replicas to requests a second.
func (s sold) cells() string {
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %s |", s.Replicas, humanize.Comma(s.Sold), humanize.Comma(s.Left),
		humanize.Comma(s.Oversold), humanize.Comma(s.Lost), humanize.Comma(int64(s.PerSecond)))
}

// demoRows is how many runs of the demo a README shows.
const demoRows = 7

func TestTheRowsOfTheReadmesAreMeasured(t *testing.T) {
	var demo struct {
		Runs []sold `json:"runs"`
	}
	if err := json.Unmarshal([]byte(read(t, "docs/demo.json")), &demo); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)`([^|]*)(\\| \\d+ \\|.*)$")
	for _, path := range readmes {
		found := row.FindAllStringSubmatch(read(t, path), -1)
		if len(found) != demoRows {
			t.Errorf("%s has %d rows of the demo, want %d", path, len(found), demoRows)
		}
		for _, one := range found {
			matches := func(s sold) bool {
				return s.Strategy == one[1] && s.Group == (strings.TrimSpace(one[2]) != "") && strings.HasPrefix(one[3], s.cells())
			}
			if !slices.ContainsFunc(demo.Runs, matches) {
				t.Errorf("%s: no run of docs/demo.json is %q", path, one[0])
			}
		}
	}
}

// A figure in prose that has a data file is the one of the file.
func TestTheFiguresOfTheReadmesAreMeasured(t *testing.T) {
	var sales []struct {
		Strategy string `json:"strategy"`
		Units    int64  `json:"units"`
		Points   []struct {
			Sold int64 `json:"sold"`
			Left int64 `json:"left"`
		} `json:"points"`
	}
	if err := json.Unmarshal([]byte(read(t, "docs/oversell.json")), &sales); err != nil {
		t.Fatal(err)
	}
	experiments := strconv.Itoa(strings.Count(read(t, "docs/lab/README.md"), "reproduced |"))
	for _, path := range readmes {
		text := read(t, path)
		for _, sale := range sales {
			end := sale.Points[len(sale.Points)-1]
			for _, want := range []int64{sale.Units, end.Sold} {
				if !strings.Contains(text, humanize.Comma(want)) {
					t.Errorf("%s does not have the %s of %s in docs/oversell.json", path, humanize.Comma(want), sale.Strategy)
				}
			}
		}
		for _, found := range regexp.MustCompile(`(\d+) (?:experiments|failures|个实验|种失效)`).FindAllStringSubmatch(text, -1) {
			if found[1] != experiments {
				t.Errorf("%s says %q, and docs/lab has %s", path, found[0], experiments)
			}
		}
	}
}

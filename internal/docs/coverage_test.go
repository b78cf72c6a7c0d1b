package docs

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
)

const (
	coverage = "docs/coverage.md"
	// described is how many things the texts describe.
	described = 128
)

// coverageRow is what the table says of one of them.
type coverageRow struct{ number, text, what, where, shown, status string }

func coverageRows(t *testing.T) (rows []coverageRow) {
	t.Helper()
	for line := range strings.Lines(read(t, coverage)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 6 || !regexp.MustCompile(`^ ?\d`).MatchString(cells[0]) {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, coverageRow{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
	}
	return rows
}

// Each of them has its row, and the sum above the table is that of the rows.
func TestTheCoverageIsCounted(t *testing.T) {
	rows, text := coverageRows(t), read(t, coverage)
	if len(rows) != described {
		t.Errorf("the table has %d rows, want %d", len(rows), described)
	}
	done := 0
	for i, row := range rows {
		if row.number != strconv.Itoa(i+1) {
			t.Fatalf("row %s stands in place %d", row.number, i+1)
		}
		for section := range strings.SplitSeq(row.text, "; ") {
			if of, _, _ := strings.Cut(section, ":"); of != "All" && !strings.Contains(text, "\n| "+of+" | ") {
				t.Errorf("row %s: %q is none of the texts above the table", row.number, of)
			}
		}
		switch row.status {
		case "done":
			done++
		case "partial", "missing":
		default:
			t.Errorf("row %s: %q is no status", row.number, row.status)
		}
	}
	if want := fmt.Sprintf("\n%d of %d are done.\n", done, described); !strings.Contains(text, want) {
		t.Errorf("%d rows are done: above the table %q is missing", done, strings.TrimSpace(want))
	}
}

// What is done leads to files, and to an experiment or a test that exists.
func TestTheCoverageNamesWhatExists(t *testing.T) {
	linked := regexp.MustCompile(`\[([^]]+)\]\(([^)\s]+)\)`)
	for _, row := range coverageRows(t) {
		if row.status == "missing" {
			continue
		}
		files := linked.FindAllStringSubmatch(row.where, -1)
		if len(files) == 0 || strings.Count(row.where, ", ") != len(files)-1 {
			t.Errorf("row %s: where is %q", row.number, row.where)
		}
		for _, file := range files {
			if to, _, _ := strings.Cut(file[2], "#"); path.Base(to) != file[1] {
				t.Errorf("row %s: %s leads to %s", row.number, file[1], to)
			}
		}
		evidence := 0
		for shown := range strings.SplitSeq(row.shown, "; ") {
			found := linked.FindStringSubmatch(shown)
			if found == nil || !strings.HasPrefix(shown, found[0]) {
				continue
			}
			if err := follows(t, found[1], found[2], strings.TrimPrefix(shown, found[0])); err != nil {
				t.Errorf("row %s: %v", row.number, err)
			}
			evidence++
		}
		if evidence == 0 {
			t.Errorf("row %s: neither an experiment nor a test shows it", row.number)
		}
	}
}

// follows looks for an experiment and its parts, or for a test in its file.
func follows(t *testing.T, label, to, rest string) error {
	t.Helper()
	number, err := strconv.Atoi(label)
	if err != nil {
		return hasTest(t, strings.Split(strings.Trim(label, "`"), "/"), path.Join("docs", to))
	}
	all := catalogue.All()
	i := slices.IndexFunc(all, func(e scenario.Experiment) bool { return e.Number == number })
	if i < 0 || path.Base(to) != pageOf(number, all[i].Name) {
		return fmt.Errorf("%s is not experiment %d", to, number)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(rest), ", ") {
		if !slices.ContainsFunc(all[i].Parts, func(p scenario.Part) bool { return p.Name == part }) {
			return fmt.Errorf("experiment %d has no part %q", number, part)
		}
	}
	return nil
}

// hasTest looks for a test in a file, and for the topic of a suite that it runs.
func hasTest(t *testing.T, name []string, file string) error {
	t.Helper()
	text := read(t, file)
	if !strings.Contains(text, "\nfunc "+name[0]+"(") {
		return fmt.Errorf("%s has no %s", file, name[0])
	}
	if len(name) == 1 {
		return nil
	}
	suites := map[string]string{"TestLocks": "internal/locktest/suite.go", "TestConformance": "internal/strategytest/suite.go"}
	if suite := suites[name[0]]; suite != "" {
		text = read(t, suite)
		if !slices.Contains(strategies(), name[2]) {
			return fmt.Errorf("%s is no strategy", name[2])
		}
	}
	if topic := name[len(name)-1]; !strings.Contains(text, strconv.Quote(topic)) {
		return fmt.Errorf("%s runs no %s", name[0], topic)
	}
	return nil
}

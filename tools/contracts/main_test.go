package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// A sentence that is changed makes the page stale, and one that is added has no test yet.
func TestEveryObligationHasATest(t *testing.T) {
	sources, err := collect(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems(sources) {
		t.Error(problem)
	}
	written, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != render(sources) {
		t.Errorf("%s is stale: go run ./tools/contracts", page)
	}
}

const (
	locker = `package lock

// Locker grants a name.
//
// Its obligations:
//
//  1. Acquire gives up with ctx. It is stock.ErrBusy
//     then, v1.2 included.
//  2. It leaves nothing.
//
// This is none.
type Locker interface {
	Acquire()
}

// Limiter has members.
//
//contract:members
type Limiter interface {
	// Limit counts. It never forgets.
	Limit()
}
`
	balancer = "# Its obligations:\n#\n# 1. A POST is sent\n#    once.\nlisten 80;\n"
	openAPI  = `openapi: 3.1.0
info: {description: Every failure is a problem.}
paths:
  /deduct:
    post:
      operationId: deduct
      description: It happens once.
      responses: {"200": {description: Sold. In full.}, "404": {description: No item. Ask anew.}}
components: {headers: {Retry-After: {description: In seconds.}}}
`
	promises = "# Selling\n\nNo promise.\n\n<!-- obligations -->\n- **First come,\n  first [served](b.md).** None is\n  lost (`TestCounts`).\n- One\n" +
		"\nLast.\n<!-- end of obligations -->\n\nNo promise.\n"
	holding = `package lock

//contract:lock.Locker Acquire gives up
//contract:lock.Locker It is stock.ErrBusy
func TestGivesUp(t *testing.T) {
	//contract:lock.Locker It leaves
}

// Counts.
//
//contract:lock.Limiter Limit counts
//contract:lock.Limiter It never
//contract:a.template A POST is sent once.
//contract:docs/sell First
//contract:docs/sell One
//contract:docs/sell Last
//contract:api Every
//contract:api.deduct It happens
//contract:api.deduct 200: In full
//contract:api.deduct 404: Ask
//contract:api.headers Retry-After:
func TestCounts(t *testing.T) {}
`
)

// project writes a small project, with its tests changed.
func project(t *testing.T, change ...string) string {
	t.Helper()
	folder := t.TempDir()
	for path, content := range map[string]string{
		"lock.go": locker, "a.template": balancer, "api/openapi.yaml": openAPI, "docs/sell.md": promises, "lock_test.go": strings.NewReplacer(change...).Replace(holding),
	} {
		full := filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestSentencesAreFoundWhereTheyStand(t *testing.T) {
	sources, err := collect(project(t))
	if err != nil {
		t.Fatal(err)
	}
	if without := problems(sources); len(without) > 0 {
		t.Errorf("without a test: %q", without)
	}
	written := render(sources)
	for _, row := range []string{
		"| Acquire gives up with ctx. | [TestGivesUp](../lock_test.go) |",
		"| It is stock.ErrBusy then, v1.2 included. | [TestGivesUp](../lock_test.go) |",
		"| It leaves nothing. | [TestGivesUp](../lock_test.go) |",
		"| It never forgets. | [TestCounts](../lock_test.go) |",
		"| A POST is sent once. | [TestCounts](../lock_test.go) |",
		"| 200: In full. | [TestCounts](../lock_test.go) |",
		"| First come, first served. | [TestCounts](../lock_test.go) |",
		"| None is lost (`TestCounts`). | [TestCounts](../lock_test.go) |",
		"| Last. | [TestCounts](../lock_test.go) |",
		"| Retry-After: In seconds. | [TestCounts](../lock_test.go) |",
	} {
		if !strings.Contains(written, row+"\n") {
			t.Errorf("no row %s in\n%s", row, written)
		}
	}
	if n := strings.Count(written, "](../lock_test.go) |"); n != 15 {
		t.Errorf("%d obligations, want 15", n)
	}
}

func TestAnObligationWithoutATestIsFound(t *testing.T) {
	sources, err := collect(project(t, "//contract:lock.Locker It leaves", ""))
	if err != nil {
		t.Fatal(err)
	}
	if without := problems(sources); len(without) != 1 || !strings.HasSuffix(without[0], "lock.Locker: It leaves nothing.") {
		t.Errorf("without a test: %q", without)
	}
}

func TestATestThatHoldsNothingIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ old, instead, want string }{
		"no such sentence":       {"Locker It leaves", "Locker It has left", "0 sentences of lock.Locker begin"},
		"several sentences":      {"Locker It leaves", "Locker It", "2 sentences of lock.Locker begin"},
		"no such source":         {"lock.Locker It leaves", "lock.Lockers It leaves", "lock.Lockers has no obligations"},
		"no test":                {"func TestCounts", "func counts", "stands at no test"},
		"no such test":           {"func TestCounts", "func TestCount", "there is no TestCounts"},
		"a test of a long proof": {"package lock\n", "//go:build prove\n\npackage lock\n", "make test does not run it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := collect(project(t, c.old, c.instead)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

package locktest

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
)

// Each topic runs under a label, which the runtime hands on to every goroutine
// that is started because of it: so the goroutines of one topic can be counted
// while other topics run.
const label = "topic"

func labelOf(t *testing.T) pprof.LabelSet { return pprof.Labels(label, t.Name()) }

// lasting reports goroutines of a pool of connections: they stay for the next user of a
// connection.
func lasting(record string) bool {
	return strings.Contains(record, "mysql.(*mysqlConn).startWatcher") || strings.Contains(record, "sql.(*DB).connectionCleaner")
}

// goroutines counts the goroutines of a test, and describes them.
func goroutines(t *testing.T) (n int, stacks string) {
	t.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	mine := fmt.Sprintf("%q:%q", label, t.Name())
	var found strings.Builder
	_, records, _ := strings.Cut(profile.String(), "\n") // after the total
	for record := range strings.SplitSeq(records, "\n\n") {
		if !strings.Contains(record, mine) || lasting(record) {
			continue
		}
		count, err := strconv.Atoi(strings.Fields(record)[0])
		if err != nil {
			t.Fatalf("a record of the profile is not understood: %s", record)
		}
		n += count
		found.WriteString(record + "\n\n")
	}
	return n, found.String()
}

// assertNoGoroutines finds that a test that is over, with all of its clients
// closed, has left no goroutine behind.
func assertNoGoroutines(t *testing.T) {
	t.Helper()
	left := 0
	var stacks string
	gone := labtest.Eventually(patience, func() bool {
		left, stacks = goroutines(t)
		return left == 0
	})
	if !gone {
		t.Errorf("%d goroutines are left when everything is closed:\n%s", left, stacks)
	}
}

// settled counts the goroutines of a test when none has come or gone for a while:
// what a client starts for itself takes its time.
func settled(t *testing.T) (n int) {
	t.Helper()
	since := time.Now()
	labtest.Eventually(patience, func() bool {
		now, _ := goroutines(t)
		if now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > aWhile
	})
	return n
}

// assertNoMoreGoroutines finds that there are as many goroutines of a test as
// there were before.
func assertNoMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	now := 0
	var stacks string
	if !labtest.Eventually(patience, func() bool { now, stacks = goroutines(t); return now <= before }) {
		t.Errorf("%d goroutines, and %d before:\n%s", now, before, stacks)
	}
}

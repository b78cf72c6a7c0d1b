package main

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Requests that fail do not fill the log: a failure that repeats is written
// once a second, and no failure is lost from the count.
func TestFailuresThatRepeatDoNotFillTheLog(t *testing.T) {
	r := startReplica(t, "--redis-addresses=127.0.0.1:1", "--redis-timeout=100ms", "--lock-wait=300ms")
	const clients, each = 20, 20
	started := time.Now()
	var crowd sync.WaitGroup
	for range clients {
		crowd.Go(func() {
			for range each {
				if got := r.Buy(t, "goods_id=1&strategy=redis-lua"); got.Status != http.StatusServiceUnavailable || got.Kind != "backend-unavailable" {
					t.Errorf("answered with %d %s", got.Status, got.Text)
				}
			}
		})
	}
	crowd.Wait()
	most := 3 + int(time.Since(started)/time.Second) // the first, and one at the exit
	r.Terminate(t)
	r.Exit(t)
	log := r.Log.Text()
	lines, failures := 0, 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "request failed") {
			continue
		}
		lines++
		failures++
		if found := regexp.MustCompile(` repeated=(\d+)`).FindStringSubmatch(line); found != nil {
			n, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			failures += n
		}
	}
	if failures != clients*each || lines > most || len(log) > 20<<10 {
		t.Errorf("%d failures have %d lines that stand for %d in a log of %d bytes, want at most %d lines", clients*each, lines, failures, len(log), most)
	}
}

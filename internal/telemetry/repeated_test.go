package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
	"github.com/stockd/stockd/internal/testlog"
)

// journal is a log of which lines are counted.
type journal struct{ testlog.Lines }

// lines are those with a message.
func (j *journal) lines(message string) (list []string) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, message) {
			list = append(list, line)
		}
	}
	return list
}

// standsFor is how many lines a list of lines stands for.
func standsFor(t *testing.T, list []string) int {
	t.Helper()
	sum := len(list)
	for _, line := range list {
		if found := regexp.MustCompile(` repeated=(\d+)`).FindStringSubmatch(line); found != nil {
			n := must.Get(strconv.Atoi(found[1]))(t)
			sum += n
		}
	}
	return sum
}

// logged is a bounded log of a test's own time.
func logged(t *testing.T) (*slog.Logger, *journal, telemetry.Bounded) {
	t.Helper()
	out := &journal{}
	bounded := telemetry.Bound(telemetry.LogHandler(slog.NewTextHandler(out, nil)))
	return slog.New(bounded), out, bounded
}

func TestRepeatedFailuresAreLoggedOnceASecondWithTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, bounded := logged(t)
		defer bounded.Close()
		for i := range 3500 { // one each millisecond
			log.ErrorContext(telemetry.WithRequestID(t.Context(), fmt.Sprint("r", i)), "request failed", "problem", "busy")
			time.Sleep(time.Millisecond)
		}
		got := out.lines("request failed")
		if len(got) != 4 || strings.Contains(got[0], "repeated") || !strings.Contains(got[1], "repeated=99") || !strings.Contains(got[0], "request_id=r0\n") {
			t.Errorf("after 3.5 s the log has %d lines:\n%s", len(got), strings.Join(got, ""))
		}
		time.Sleep(time.Minute)
		if got := out.lines("request failed"); len(got) != 5 || standsFor(t, got) != 3500 || !strings.Contains(got[4], "request_id=r3499") {
			t.Errorf("at the end %d lines stand for %d, want 5 for 3500:\n%s", len(got), standsFor(t, got), strings.Join(got, ""))
		}
		log.Error("request failed", "problem", "busy")
		if got := out.lines("request failed"); len(got) != 6 || strings.Contains(got[5], "repeated") {
			t.Errorf("a failure after a pause is not written at once and alone: %v", got[5:])
		}
		log.Error("request failed", "problem", "busy")
		time.Sleep(time.Minute)
		if got := out.lines("request failed"); len(got) != 7 || strings.Contains(got[6], "repeated") {
			t.Errorf("a failure that is held counts others where there are none: %v", got[6:])
		}
	})
}

func TestEachKindOfFailureIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, bounded := logged(t)
		defer bounded.Close()
		for range 3 {
			log.Warn("a warning")
			log.Error("request failed", "status", 503, "problem", "busy", "client", "c")
			log.WithGroup("of").Warn("a warning")
			log.With("of", "another logger").Error("request failed", "status", 503, "problem", "internal", "client", "c")
			log.Warn("backend does not answer", "backend", "redis")
			log.Warn("backend does not answer", "backend", "etcd")
			log.Info("listening") // no failure
		}
		for message, want := range map[string]int{"a warning": 1, "busy": 1, "internal": 1, "backend=redis": 1, "backend=etcd": 1, "listening": 3} {
			should.Be(t, len(out.lines(message)), want, "the lines of", message)
		}
	})
}

// The end of the replica loses no count.
func TestCloseWritesWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, bounded := logged(t)
		for range 10 {
			log.Error("request failed")
		}
		log.Warn("once")
		for range 2 {
			log.Warn("twice")
		}
		bounded.Close()
		got := out.lines("once")
		should.Be(t, len(got), 1, "what was written once is", got)
		if got := out.lines("twice"); len(got) != 2 || standsFor(t, got) != 2 {
			t.Errorf("what was written twice is %q", got)
		}
		if got := out.lines("request failed"); len(got) != 2 || standsFor(t, got) != 10 {
			t.Errorf("the log has %q", got)
		}
		log.Error("request failed")
		got = out.lines("request failed")
		should.Be(t, len(got), 3, "after Close the log has", got)
		time.Sleep(time.Minute) // the interval of each kind ends after that
		got = out.lines("")
		should.Be(t, len(got), 6, "a minute after Close the log has", got)
	})
}

// Not even kinds without end take memory without end, or the log.
func TestTheKindsThatAreHeldAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out, bounded := logged(t)
		defer bounded.Close()
		const kinds = 10_000
		for i := range kinds {
			log.Warn("strategy switched", "strategy", strconv.Itoa(i))
		}
		if got := out.lines("switched"); len(got) != 257 { // and the one that all others share
			t.Errorf("%d lines of %d kinds, want 257", len(got), kinds)
		}
		for range 3 {
			log.Warn("strategy switched", "strategy", "7") // it is known
		}
		log.Warn("strategy switched", "strategy", "another")
		time.Sleep(time.Minute)
		should.Be(t, standsFor(t, out.lines("switched")), kinds+4, "the lines stand")
		if got := out.lines("strategy=7 "); len(got) != 1 || !strings.Contains(got[0], "repeated=2") {
			t.Errorf("a kind that is known shares the lines of the others: %q", got)
		}
	})
}

// alive is a handler that refuses what comes after the end of its context.
type alive struct{ slog.Handler }

func (a alive) Handle(ctx context.Context, r slog.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.Handler.Handle(ctx, r)
}

// A request has ended by the time that its line is written.
func TestALineOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &journal{}
		bounded := telemetry.Bound(alive{slog.NewTextHandler(out, nil)})
		defer bounded.Close()
		ctx, end := context.WithCancel(t.Context())
		for range 2 {
			slog.New(bounded).ErrorContext(ctx, "request failed")
		}
		end()
		time.Sleep(time.Minute)
		got := out.lines("request failed")
		should.Be(t, len(got), 2, "the log has", got)
	})
}

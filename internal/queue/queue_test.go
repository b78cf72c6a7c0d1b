package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

type (
	options = queue.Options[string, string, string]
	asked   = queue.Call[string, string]
)

// desk is a queue whose writes wait until the test lets one end, or their context ends. A call is answered
// with what it asks for, in capitals.
type desk struct {
	t     *testing.T
	q     *queue.Queue[string, string, string]
	gate  chan struct{}
	mu    sync.Mutex
	begun []string        // the calls of each write
	left  []time.Duration // that each had
	// deaf writes do not end with their context, and fail without it. panics has them panic when they end.
	deaf, panics bool
	log          strings.Builder
}

// answer is what a caller gets, once it has got it.
type answer struct {
	answered bool
	text     string
	err      error
}

var (
	errGone  = errors.New("the buyer hung up")
	errEnded = errors.New("the write was ended")
)

// atDesk runs a test in a bubble of time, which no goroutine may outlive.
func atDesk(t *testing.T, o options, test func(d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, gate: make(chan struct{})}
		o.Doing, o.Write, o.Log = "write", d.write, slog.New(slog.NewTextHandler(&d.log, nil))
		if o.Within == 0 {
			o.Within = time.Minute
		}
		if o.Most == 0 {
			o.Most = 100
		}
		d.q = queue.New(o)
		test(d)
	})
}

func (d *desk) write(ctx context.Context, _ string, calls []*asked) {
	texts := make([]string, len(calls))
	for i, c := range calls {
		texts[i] = c.Ask
	}
	until, _ := ctx.Deadline()
	d.mu.Lock()
	d.begun, d.left = append(d.begun, strings.Join(texts, " ")), append(d.left, time.Until(until))
	d.mu.Unlock()
	ended := ctx.Done()
	if d.deaf {
		ended = nil
	}
	select {
	case <-d.gate:
	case <-ended:
		for _, c := range calls {
			c.Answer("", fmt.Errorf("%w: %w", errEnded, context.Cause(ctx)))
		}
	}
	if d.panics {
		panic("a write that is broken")
	}
	for _, c := range calls {
		c.Answer(strings.ToUpper(c.Ask), nil)
	}
}

// ask calls, and returns when the call waits, or is answered.
func (d *desk) ask(ctx context.Context, key, text string) *answer {
	a := new(answer)
	go func() {
		got, err := d.q.Do(ctx, key, text)
		*a = answer{true, got, err}
	}()
	synctest.Wait()
	return a
}

func (d *desk) call(text string) *answer { return d.ask(d.t.Context(), "key", text) }

// leaving is a call whose caller can be made to give up.
func (d *desk) leaving(text string) (a *answer, leave func()) {
	ctx, cancel := context.WithCancelCause(d.t.Context())
	return d.ask(ctx, "key", text), func() { cancel(errGone); synctest.Wait() }
}

// pass lets time pass, and what is due happen; end lets one write end, and endAll all of them from now on.
func (d *desk) pass(t time.Duration) { time.Sleep(t); synctest.Wait() }
func (d *desk) end()                 { d.gate <- struct{}{}; synctest.Wait() }
func (d *desk) endAll()              { close(d.gate); synctest.Wait() }

func (d *desk) assertBegun(want ...string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.begun, want) {
		d.t.Errorf("the writes are %q, want %q", d.begun, want)
	}
}

func (d *desk) assertAnswer(a *answer, text string) {
	d.t.Helper()
	if *a != (answer{true, text, nil}) {
		d.t.Errorf("the answer is %+v, want %s", *a, text)
	}
}

func (d *desk) assertError(a *answer, unknown bool, kinds ...error) {
	d.t.Helper()
	for _, kind := range kinds {
		if !a.answered || !errors.Is(a.err, kind) || errors.Is(a.err, stock.ErrUnknownOutcome) != unknown {
			d.t.Errorf("the answer is %+v, want %v, and unknown: %t", *a, kind, unknown)
		}
	}
}

func TestWhatWaitsIsWrittenTogetherFirstComeFirstServed(t *testing.T) {
	atDesk(t, options{Most: 3}, func(d *desk) {
		first := d.call("first")
		b := d.call("b")
		for _, text := range []string{"c", "d", "e"} {
			d.call(text)
		}
		other := d.ask(d.t.Context(), "another key", "other")
		d.assertBegun("first", "other")
		if waiting := d.q.Waiting(); waiting != 4 || first.answered || b.answered || other.answered {
			t.Errorf("%d wait, want 4, and none is answered before it is written", waiting)
		}
		d.endAll()
		d.assertBegun("first", "other", "b c d", "e")
		d.assertAnswer(first, "FIRST")
		d.assertAnswer(b, "B")
		should.Be(t, d.q.Waiting(), 0, "wait in the end")
	})
}

func TestACallHeavierThanAWriteHasOneOfItsOwn(t *testing.T) {
	atDesk(t, options{Most: 3, Weight: func(s string) int { return len(s) }}, func(d *desk) {
		for _, text := range []string{"first", "a", "heavy", "bb", "c", "d"} {
			d.call(text)
		}
		d.endAll()
		d.assertBegun("first", "a", "heavy", "bb c", "d")
	})
}

func TestAFullQueueIsBusyAtOnce(t *testing.T) {
	atDesk(t, options{Room: 2, Weight: func(s string) int { return len(s) }}, func(d *desk) {
		d.call("is being written, and does not wait")
		gone, leave := d.leaving("g")
		a := d.call("a")
		d.assertError(d.call("x"), false, stock.ErrBusy)
		leave()
		d.assertError(gone, false, errGone)
		d.assertError(d.call("xx"), false, stock.ErrBusy)
		b := d.call("b")
		d.endAll()
		d.assertAnswer(a, "A")
		d.assertAnswer(b, "B")
		d.gate = make(chan struct{})
		d.call("first")
		large := d.call("larger than the room, and alone")
		d.assertError(d.call("x"), false, stock.ErrBusy)
		d.endAll()
		d.assertAnswer(large, "LARGER THAN THE ROOM, AND ALONE")
	})
}

func TestWhoLeavesTheQueueLeavesNoTrace(t *testing.T) {
	for _, changes := range []bool{false, true} {
		atDesk(t, options{Changes: changes}, func(d *desk) {
			ended, cancel := context.WithCancelCause(d.t.Context())
			cancel(errGone)
			d.assertError(d.ask(ended, "key", "came too late"), false, errGone)
			d.assertBegun()
			d.call("first")
			gone, leave := d.leaving("gone")
			after := d.call("after")
			leave()
			d.assertError(gone, false, errGone)
			d.endAll()
			d.assertBegun("first", "after")
			d.assertAnswer(after, "AFTER")
		})
	}
}

// inOneWrite has two callers that can leave in a write that is under way.
func inOneWrite(d *desk) (a, b *answer, leaveA, leaveB func()) {
	d.call("first")
	a, leaveA = d.leaving("a")
	b, leaveB = d.leaving("b")
	d.end()
	d.assertBegun("first", "a b")
	return a, b, leaveA, leaveB
}

func TestWhoLeavesAReadGoesAtOnceAndTheLastOneEndsIt(t *testing.T) {
	atDesk(t, options{}, func(d *desk) {
		a, b, leaveA, leaveB := inOneWrite(d)
		leaveA()
		d.assertError(a, false, errGone)
		if b.answered {
			t.Errorf("the other one gets %+v", b)
		}
		next := d.call("next")
		leaveB()
		d.assertError(b, false, errGone)
		d.assertBegun("first", "a b", "next") // the gate has let none of them go
		d.endAll()
		d.assertAnswer(next, "NEXT")
	})
}

// A read that is not answered in time is what its user says: overload, or a failure.
func TestWhoWaitsTooLongForAReadHasTheErrorOfItsUser(t *testing.T) {
	errLate := errors.New("late")
	atDesk(t, options{Late: func(doing string, cause error) error { return fmt.Errorf("%w: %s: %w", errLate, doing, cause) }}, func(d *desk) {
		ctx, end := context.WithTimeout(d.t.Context(), time.Second)
		defer end()
		d.call("first")
		late := d.ask(ctx, "key", "a")
		gone, leave := d.leaving("b")
		leave()
		d.pass(2 * time.Second)
		d.assertError(late, false, errLate, context.DeadlineExceeded)
		d.assertError(gone, false, errGone)
		d.assertError(d.ask(ctx, "key", "c"), false, errLate)
		d.endAll()
	})
}

func TestWhoLeavesAChangeHasItsOutcomeOrDoesNotKnowIt(t *testing.T) {
	atDesk(t, options{Changes: true}, func(d *desk) {
		a, b, leaveA, _ := inOneWrite(d)
		leaveA()
		d.pass(queue.EndWithin - 1)
		d.end()
		d.assertAnswer(a, "A")
		d.assertAnswer(b, "B")
	})
	atDesk(t, options{Changes: true}, func(d *desk) {
		a, b, leaveA, _ := inOneWrite(d)
		leaveA()
		d.pass(queue.EndWithin)
		d.assertError(a, true, errGone)
		if b.answered {
			t.Errorf("the other one gets %+v", b)
		}
		d.endAll()
		d.assertAnswer(b, "B")
	})
}

// Each that has left has a cause of its own, also where the last one, or a deadline, ends the write.
func TestTheLastToLeaveEndsAChangeForAll(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		atDesk(t, options{Changes: true}, func(d *desk) {
			d.call("first")
			d.deaf = deaf // from the next write on
			late, cancel := context.WithTimeout(d.t.Context(), time.Second)
			defer cancel()
			early, cancelEarly := context.WithTimeout(d.t.Context(), time.Second-queue.EndWithin/2)
			defer cancelEarly()
			a, b := d.ask(late, "key", "a"), d.ask(early, "key", "b")
			c, leave := d.leaving("c")
			d.end()
			d.pass(time.Second - queue.EndWithin/2)
			leave()
			d.pass(queue.EndWithin / 2)
			if deaf {
				d.pass(queue.EndWithin)
			}
			d.assertError(a, deaf, context.DeadlineExceeded)
			d.assertError(b, deaf, context.DeadlineExceeded)
			if d.assertError(c, deaf, errGone); errors.Is(c.err, context.DeadlineExceeded) {
				t.Errorf("one that hung up is answered with %v", c.err)
			}
			d.endAll()
		})
	}
}

// One whose answer is there as it leaves has it, although others of its write wait on.
func TestAnAnswerThatIsThereIsGiven(t *testing.T) {
	var early, late *asked
	written := make(chan struct{})
	q := queue.New(options{Changes: true, Within: time.Minute, Write: func(_ context.Context, _ string, calls []*asked) {
		if len(calls) == 2 {
			early, late = calls[0], calls[1]
			early.Answer("EARLY", nil)
			early.Answer("twice", errEnded) // the first one counts
		}
		<-written
	}, Most: 2})
	synctest.Test(t, func(t *testing.T) {
		written = make(chan struct{})
		d := &desk{t: t, q: q}
		d.call("first")
		a, leaveA := d.leaving("a")
		b, leaveB := d.leaving("b")
		written <- struct{}{}
		synctest.Wait()
		d.assertAnswer(a, "EARLY")
		leaveA()
		leaveB()
		if left := late.Left(); !errors.Is(left, errGone) || early.Left() != nil {
			t.Errorf("the one that waits has left because of %v, and the one that has its answer of %v", left, early.Left())
		}
		late.Answer("LATE", nil)
		synctest.Wait()
		d.assertAnswer(b, "LATE")
		close(written)
	})
}

func TestAWriteLastsAsLongAsItsLastCallerWaitsAndNoLongerThanItsLimit(t *testing.T) {
	atDesk(t, options{}, func(d *desk) {
		for i, wait := range []time.Duration{time.Second, time.Second, 5 * time.Second, time.Second} {
			ctx, cancel := context.WithTimeout(d.t.Context(), wait)
			defer cancel()
			d.ask(ctx, "key", fmt.Sprint("p", i))
		}
		d.end()
		d.end()
		unlimited := d.call("unlimited")
		d.pass(time.Minute)
		d.assertError(unlimited, false, context.DeadlineExceeded)
		d.assertBegun("p0", "p1 p2 p3", "unlimited")
		should.Equal(t, d.left, []time.Duration{time.Second, 5 * time.Second, time.Minute}, "the writes have")
	})
}

// A writer that is late does not hold the others up: it may be waiting itself.
func TestMoreWritersBeginWhereNoneEndsInTime(t *testing.T) {
	atDesk(t, options{Writers: 2, Most: 2, Patience: 20 * time.Millisecond}, func(d *desk) {
		d.call("a")
		d.call("b")
		d.call("c")
		d.pass(19 * time.Millisecond)
		d.call("d")
		d.call("e")
		d.assertBegun("a", "b")
		d.pass(time.Millisecond)
		d.assertBegun("a", "b", "c d") // three are under way
		d.pass(20 * time.Millisecond)
		d.assertBegun("a", "b", "c d", "e") // what had no room
		d.call("f")
		d.end()
		d.end()
		d.assertBegun("a", "b", "c d", "e") // there are two still
		d.end()
		d.assertBegun("a", "b", "c d", "e", "f")
		d.call("g")
		d.pass(10 * time.Millisecond)
		d.end()
		d.call("h")
		d.pass(19 * time.Millisecond) // its wait begins with it, and not with that of g
		d.assertBegun("a", "b", "c d", "e", "f", "g")
		d.pass(time.Millisecond)
		d.assertBegun("a", "b", "c d", "e", "f", "g", "h")
		d.endAll()
	})
}

func TestAPanicIsAnErrorOfItsWriteAlone(t *testing.T) {
	for _, changes := range []bool{false, true} {
		atDesk(t, options{Changes: changes}, func(d *desk) {
			d.panics = true
			first := d.call("first")
			d.end()
			if first.err == nil || strings.Contains(first.err.Error(), "broken") || errors.Is(first.err, stock.ErrUnknownOutcome) != changes {
				t.Errorf("the answer is %+v", first)
			}
			should.Contain(t, d.log.String(), "a write that is broken")
			d.panics = false
			next := d.call("next")
			d.endAll()
			d.assertAnswer(next, "NEXT")
		})
	}
}

func TestCloseAnswersTheQueueAndWaitsForWhatIsWritten(t *testing.T) {
	atDesk(t, options{Changes: true}, func(d *desk) {
		a, waits := d.call("a"), d.call("waits")
		closed := false
		go func() {
			d.q.Close()
			closed = true
		}()
		synctest.Wait()
		d.assertError(waits, false, stock.ErrBusy)
		if closed || a.answered {
			t.Errorf("closed %t in the middle of a write, which got %+v", closed, a)
		}
		d.endAll()
		d.assertAnswer(a, "A")
		d.assertError(d.call("late"), false, stock.ErrBusy)
		d.assertBegun("a")
		if !closed {
			t.Error("does not close when everything is written")
		}
	})
}

// The first caller starts the goroutine that writes for all. Its trace has ended when the others are served.
func TestAWriteIsAPartOfALiveCallersTrace(t *testing.T) {
	atDesk(t, options{}, func(d *desk) {
		spans := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
		ask := func(name string) (trace.SpanContext, func()) {
			ctx, cancel := context.WithCancelCause(d.t.Context())
			ctx, span := tracer.Start(ctx, name)
			d.ask(ctx, "key", name)
			return span.SpanContext(), func() { cancel(errGone); synctest.Wait(); span.End() }
		}
		_, leave := ask("gone")
		first, _ := ask("first")
		second, _ := ask("second")
		leave()
		d.endAll()
		var writes []sdk.ReadOnlySpan
		for _, s := range spans.Ended() {
			if s.Name() == "write" {
				writes = append(writes, s)
			}
		}
		if len(writes) != 2 || writes[1].Parent().SpanID() != first.SpanID() || len(writes[1].Links()) != 1 ||
			writes[1].Links()[0].SpanContext.SpanID() != second.SpanID() {
			t.Errorf("the writes are %v, want the second to be of the live callers", writes)
		}
	})
}

// Any number of callers has one query under way, and each finds its own answer, or that there is none.
func TestOneQueryAnswersAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, failure := make(chan struct{}), error(nil)
		var queries [][]int
		s := queue.Share(func(_ context.Context, keys ...int) (map[int]string, error) {
			queries = append(queries, keys)
			<-gate
			return map[int]string{2: "two", 3: "three"}, failure
		}, nil, queue.Options[int, []int, map[int]string]{Doing: "query", Most: 3, Within: time.Minute})
		var mu sync.Mutex
		got := make(map[string]map[int]string)
		for _, keys := range [][]int{{1}, {2, 3}, {4}, {5, 6, 7, 8}} {
			go func() {
				values, err := s.Get(t.Context(), keys...)
				if !errors.Is(err, failure) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(keys)] = values
			}()
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		if want := [][]int{{1}, {2, 3, 4}, {5, 6, 7, 8}}; !slices.EqualFunc(queries, want, slices.Equal) {
			t.Errorf("the queries are %v, want %v", queries, want)
		}
		if got["[2 3]"][2] != "two" || got["[4]"][4] != "" {
			t.Errorf("the answers are %v", got)
		}
		failure = errors.New("the database is gone")
		should.Reject(s.Get(t.Context(), 1))(t, failure)
	})
}

// Keys of different servers are in different queries: a server that does not answer delays only its own keys. A query of
// several calls that fails is repeated for each.
func TestAServerThatIsDownFailsNoKeyOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, down := make(chan struct{}), errors.New("a server is down")
		s := queue.Share(func(ctx context.Context, keys ...int) (map[int]string, error) {
			if keys[0]%2 == 1 {
				<-ctx.Done()
				return nil, down
			}
			<-gate
			if slices.Contains(keys, 4) {
				return nil, down
			}
			return map[int]string{2: "two", 6: "six"}, nil
		}, func(key int) int { return key % 2 }, queue.Options[int, []int, map[int]string]{Doing: "query", Most: 3, Within: time.Minute})
		begun, got := time.Now(), make(map[string]string)
		var mu sync.Mutex
		for _, keys := range [][]int{{0}, {1}, {2}, {4}, {6}, {2, 1}} {
			go func() {
				values, err := s.Get(t.Context(), keys...)
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(keys)] = fmt.Sprint(time.Since(begun), values, err)
			}()
			synctest.Wait()
		}
		close(gate)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		should.Be(t, fmt.Sprint(got), fmt.Sprint(map[string]string{
			"[0]": "0s map[2:two 6:six] <nil>", "[2]": "0s map[2:two 6:six] <nil>", "[6]": "0s map[2:two 6:six] <nil>",
			"[4]": "0s map[] a server is down", "[1]": "1m0s map[] a server is down", "[2 1]": "2m0s map[] a server is down",
		}))
	})
}

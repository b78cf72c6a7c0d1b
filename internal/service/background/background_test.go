package background

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const testGrace = 500 * time.Millisecond

func TestWorkInTheBackgroundOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := NewJobs(slog.New(slog.DiscardHandler))
		request, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var done error
		begun := time.Now()
		err := jobs.Do(request, time.Minute, "test", func(ctx context.Context) error {
			select {
			case <-time.After(1200 * time.Millisecond):
			case <-ctx.Done():
			}
			done = ctx.Err()
			return done
		})
		if took := time.Since(begun); took != time.Second || !errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("after %s the request got %v, want %v at its deadline", took, err, stock.ErrUnknownOutcome)
		}
		if err := jobs.Close(testGrace); err != nil || done != nil {
			t.Errorf("the work ended with %v, the close with %v", done, err)
		}
	})
}

// What is committed is followed up, also when its client has left.
func TestWorkInTheBackgroundBeginsAfterItsRequest(t *testing.T) {
	jobs := NewJobs(slog.New(slog.DiscardHandler))
	request, cancel := context.WithCancel(t.Context())
	cancel()
	var done bool
	_ = jobs.Do(request, time.Minute, "test", func(ctx context.Context) error {
		done = ctx.Err() == nil
		return nil
	})
	must.Do(t, jobs.Close(testGrace))
	should.Be(t, done, true, "the work was done")
}

func TestClosingCutsLongWorkOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := NewJobs(slog.New(slog.DiscardHandler))
		request, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = jobs.Do(request, time.Hour, "test", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		begun := time.Now()
		if err := jobs.Close(testGrace); !errors.Is(err, ErrCutOff) || time.Since(begun) != testGrace {
			t.Errorf("after %s the close ended with %v, want %v after %s", time.Since(begun), err, ErrCutOff, testGrace)
		}
		should.Fail(t, jobs.Do(t.Context(), time.Second, "test", func(context.Context) error { return nil }), stock.ErrBusy) // after the close work
	})
}

// A panic is an error that shows nothing, and the log has its cause and its stack once.
func TestAPanicIsAnErrorAndALine(t *testing.T) {
	var lines bytes.Buffer
	log, failure := slog.New(slog.NewTextHandler(&lines, nil)), errors.New("failed")
	defer func(before *slog.Logger) { slog.SetDefault(before) }(slog.Default())
	slog.SetDefault(log)
	for _, log := range []*slog.Logger{log, nil} {
		lines.Reset()
		err := Guard(t.Context(), log, "a test", func() error { panic("the cause") })
		if !errors.Is(err, ErrPanicked) || strings.Contains(err.Error(), "the cause") {
			t.Errorf("a panic is %v", err)
		}
		for _, want := range []string{"level=ERROR", "msg=" + PanicMessage, `doing="a test"`, `cause="the cause"`, "background_test.go"} {
			if strings.Count(lines.String(), "msg=") != 1 || !strings.Contains(lines.String(), want) {
				t.Errorf("the log lacks %q: %s", want, &lines)
			}
		}
		lines.Reset()
		if err := Guard(t.Context(), log, "a test", func() error { return failure }); !errors.Is(err, failure) || lines.Len() != 0 {
			t.Errorf("an error is %v, and the log has %s", err, &lines)
		}
	}
}

// Work has its own limit, however long its request lasts, and what the context of the request names
// for the log and the trace.
func TestWorkInTheBackgroundHasALimitOfItsOwn(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		jobs, begun := NewJobs(slog.New(slog.DiscardHandler)), time.Now()
		work := func(ctx context.Context) error {
			should.Be(t, ctx.Value(key{}), "request", "the work does not know its request")
			<-ctx.Done()
			return ctx.Err()
		}
		request := context.WithValue(t.Context(), key{}, "request")
		if err := jobs.Do(request, time.Minute, "test", work); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("after %s the work ended with %v, want %v after a minute", time.Since(begun), err, context.DeadlineExceeded)
		}
		jobs.Finish(request, "test", work)
		for range 2 { // the second finds nothing to wait for
			should.Do(t, jobs.Close(time.Hour))
		}
		should.Be(t, time.Since(begun), time.Minute+FinishWithin, "all of it took")
	})
}

func TestAJobReturnsItsError(t *testing.T) {
	jobs, failure := NewJobs(slog.New(slog.DiscardHandler)), errors.New("failed")
	should.Fail(t, jobs.Do(t.Context(), time.Minute, "test", func(context.Context) error { return failure }), failure)
}

// After the close what is decided is finished all the same, and nothing else is begun.
func TestWhatIsDecidedIsFinishedAfterTheClose(t *testing.T) {
	jobs := NewJobs(slog.New(slog.DiscardHandler))
	should.Do(t, jobs.Close(testGrace))
	finished := false
	jobs.Finish(t.Context(), "test", func(context.Context) error { finished = true; return nil })
	if err := jobs.Do(t.Context(), time.Minute, "test", func(context.Context) error { t.Error("begun"); return nil }); !errors.Is(err, stock.ErrBusy) || !finished {
		t.Errorf("after the end: %v, and the rest is finished: %v", err, finished)
	}
}

// A backend that hangs delays no answer for long, and closing waits for the release.
func TestAHungReleaseDelaysTheAnswerBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, start := NewJobs(slog.New(slog.DiscardHandler)), time.Now()
		request, cancel := context.WithCancel(t.Context())
		cancel()
		jobs.Finish(request, "release lock", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		should.Be(t, time.Since(start), finishWait, "the answer waits for")
		should.Do(t, jobs.Close(time.Hour))
		should.Be(t, time.Since(start), FinishWithin, "the release ends after")
	})
}

// Work that fails when its request has gone is in the log: no one else has its error.
func TestWorkThatFailsAfterItsRequestIsLogged(t *testing.T) {
	for name, fails := range map[string]error{"it fails": errors.New("lock wait timeout"), "it works": nil} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			jobs := NewJobs(slog.New(slog.NewTextHandler(&log, nil)))
			request, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := jobs.Do(request, time.Minute, "set a limit", func(context.Context) error {
				time.Sleep(2 * time.Second)
				return fails
			})
			should.Fail(t, err, stock.ErrUnknownOutcome, "answered", name)
			should.Do(t, jobs.Close(3*time.Second))
			synctest.Wait()
			should.Be(t, strings.Contains(log.String(), `doing="set a limit"`) && strings.Contains(log.String(), "lock wait timeout"), fails != nil, name, &log)
		})
	}
}

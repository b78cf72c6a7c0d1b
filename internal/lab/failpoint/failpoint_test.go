package failpoint_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func open(t *testing.T) (l *failpoint.Registry, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.jsonl")
	l = must.Get(failpoint.Open(failpoint.Options{Replica: "replica-1", History: path, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() {
		should.Do(t, l.Close())
	})
	return l, path
}

func read(t *testing.T, path string) *history.History {
	t.Helper()
	return must.Get(history.Read(path))(t)
}

// lease is a lease of which a test says when it is lost.
type lease struct {
	ctx context.Context
}

func (lease) Token() uint64                   { return 9 }
func (l lease) Context() context.Context      { return l.ctx }
func (l lease) Release(context.Context) error { return context.Cause(l.ctx) }

// grants is a lock that grants one lease, and nothing after.
type grants chan lock.Lease

func (g grants) Acquire(context.Context, string) (lock.Lease, error) {
	select {
	case l := <-g:
		return l, nil
	default:
		return nil, lock.ErrNotAcquired
	}
}

func TestALossAndAFailureAreRecorded(t *testing.T) {
	lab, path := open(t)
	ctx, lose := context.WithCancelCause(t.Context())
	one := make(grants, 1)
	one <- lease{ctx}
	l := lab.Record("redis-lua", one)
	held := must.Get(l.Acquire(t.Context(), "goods/1"))(t)
	lose(lock.ErrLost)
	for len(read(t, path).Leases) == 0 || read(t, path).Leases[0].Lost.IsZero() {
		if t.Context().Err() != nil {
			t.Fatal("the loss was not recorded")
		}
		time.Sleep(time.Millisecond)
	}
	should.Fail(t, held.Release(t.Context()), lock.ErrLost, "the release of a lost lease is")
	should.Reject(l.Acquire(t.Context(), "goods/1"))(t, lock.ErrNotAcquired, "the lock that was not granted")
	h := read(t, path)
	if len(h.Leases) != 2 {
		t.Fatalf("leases are %+v, want two", h.Leases)
	}
	if lost := h.Leases[0]; lost.Token != 9 || lost.Lost.IsZero() || lost.Released.IsZero() || lost.Error != lock.ErrLost.Error() {
		t.Errorf("the lost lease is %+v", lost)
	}
	if failed := h.Leases[1]; failed.GaveUp.IsZero() || !failed.Granted.IsZero() || failed.Error != lock.ErrNotAcquired.Error() {
		t.Errorf("the lease that was not granted is %+v", failed)
	}
}

// Contenders of one experiment are made while others record already.
func TestSeveralRecordInOneFile(t *testing.T) {
	const contenders, leases = 8, 20
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w := must.Get(history.Create(path))(t)
	var all sync.WaitGroup
	for range contenders {
		all.Go(func() {
			l, err := failpoint.Open(failpoint.Options{Replica: "one of them", Writer: w, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
				return
			}
			recorded := l.Record("mutex", process.New())
			for range leases {
				labtest.HoldAndRelease(t, recorded, "goods/1")
			}
			should.Do(t, l.Close())
		})
	}
	all.Wait()
	should.Be(t, len(read(t, path).Leases), contenders*leases, "leases that were read")
	should.Do(t, w.Close())
}

func TestAHoldEndsWithTheLeaseUnlessItIgnoresCancellation(t *testing.T) {
	lab, _ := open(t)
	for _, ignores := range []bool{false, true} {
		lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: 50 * time.Millisecond, IgnoreCancel: ignores})
		ctx, end := context.WithCancel(t.Context())
		end()
		began := time.Now()
		ctx = lab.Between(ctx, "naive", 1)
		held := time.Since(began) >= 50*time.Millisecond
		if held != ignores || (ctx.Err() == nil) != ignores {
			t.Errorf("ignoring cancellation %v: held %v, and then %v", ignores, held, ctx.Err())
		}
	}
}

func TestClearingAndClosingLetGoWhatIsHeld(t *testing.T) {
	for name, end := range map[string]func(*failpoint.Registry) error{
		"clear": func(lab *failpoint.Registry) error { lab.ClearFaults(); return nil },
		"close": (*failpoint.Registry).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			lab := must.Get(failpoint.Open(failpoint.Options{Log: slog.New(slog.DiscardHandler)}))(t)
			lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: time.Hour, IgnoreCancel: true})
			began := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				lab.Between(t.Context(), "naive", 1)
			}()
			synctest.Wait()
			should.Fail(t, end(lab), nil, name)
			<-done
			if held := time.Since(began); held > 0 || len(lab.Faults()) != 0 {
				t.Errorf("%s: held for %s, and faults are %+v", name, held, lab.Faults())
			}
		})
	}
}

// Close ends the record; what happens later is a gap in it, and the log says so.
func TestARecordEndsWithItsRegistry(t *testing.T) {
	var log strings.Builder
	lab := must.Get(failpoint.Open(failpoint.Options{History: filepath.Join(t.TempDir(), "history.jsonl"), Log: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	step := func() {
		lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: time.Nanosecond})
		lab.Between(t.Context(), "naive", 1)
	}
	if step(); log.Len() > 0 {
		t.Errorf("while it is open the log has %q", log.String())
	}
	should.Do(t, lab.Close())
	if step(); !strings.Contains(log.String(), "gap") {
		t.Errorf("after Close the log has %q", log.String())
	}
	if err := lab.Close(); err == nil {
		t.Error("a failure to close the record is not returned")
	}
}

// side is one side of a read-write lock, which shares its name.
type side struct{ lock.Locker }

func (side) Mode() (string, bool) { return "rw", true }

func TestASharedLeaseIsRecordedAsOneOfItsLock(t *testing.T) {
	lab, path := open(t)
	must.Get(lab.Record("rw-read", side{process.New()}).Acquire(t.Context(), "goods/1"))(t)
	if h := read(t, path); len(h.Leases) != 1 || !h.Leases[0].Shared || h.Leases[0].Lock != "rw" {
		t.Errorf("leases are %+v, want a shared one of rw", h.Leases)
	}
}

func TestAFaultInterruptsOnePurchaseUnlessItSaysMore(t *testing.T) {
	lab, path := open(t)
	lab.SetFault(failpoint.Fault{Do: failpoint.Hold, Strategy: "naive", For: time.Nanosecond, Reached: 5})
	lab.SetFault(failpoint.Fault{Do: failpoint.Hold, GoodsID: 7, For: time.Nanosecond, Times: 2})
	for _, purchase := range []struct {
		strategy      string
		goods         int64
		first, second int64 // how often the faults were reached
	}{{"mutex", 1, 0, 0}, {"mutex", 9, 0, 0}, {"naive", 7, 1, 0}, {"naive", 1, 1, 0}, {"naive", 7, 1, 1}, {"mutex", 7, 1, 2}, {"mutex", 7, 1, 2}} {
		lab.Between(t.Context(), purchase.strategy, purchase.goods)
		faults := lab.Faults()
		if faults[0].Reached != purchase.first || faults[1].Reached != purchase.second || faults[0].Times != 1 {
			t.Errorf("after %+v the faults are %+v", purchase, faults)
		}
		faults[0].Reached, faults[1].Reached = 9, 9 // they are copies
	}
	if marks := read(t, path).Marks; len(marks) != 6 || marks[0].What != failpoint.Held || marks[1].What != failpoint.WentOn || marks[0].Who != "replica-1" {
		t.Errorf("marks are %+v", marks)
	}
}

// A purchase is held for as long as the fault says, and its context is left alone.
func TestAHoldLastsAsLongAsItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab := must.Get(failpoint.Open(failpoint.Options{}))(t)
		lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if got := lab.Between(ctx, "naive", 1); got != ctx || time.Since(start) != time.Minute {
			t.Errorf("held for %s, and then %v", time.Since(start), got)
		}
		lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: time.Minute, IgnoreCancel: true})
		if got := lab.Between(ctx, "naive", 1); got.Done() != nil {
			t.Errorf("a purchase that ignores its cancellation can be cancelled: %v", got)
		}
	})
}

// slow is a lock whose answers take their time.
type slow struct{ acquire, release time.Duration }

func (s slow) Acquire(context.Context, string) (lock.Lease, error) {
	time.Sleep(s.acquire)
	return lock.NewHeld(7, func(context.Context) error { time.Sleep(s.release); return nil }), nil
}

// A lease counts from when its holder has it to when the holder begins its release.
func TestALeaseIsRecordedAsLongAsItsHolderHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab, path := open(t)
		start := time.Now()
		held := must.Get(lab.Record("slow", slow{acquire: time.Second, release: time.Minute}).Acquire(t.Context(), "goods/1"))(t)
		time.Sleep(time.Second)
		should.Do(t, held.Release(t.Context()))
		h := read(t, path)
		got := h.Leases[0]
		if len(h.Leases) != 1 || got.Shared || got.Name != "goods/1" || got.Holder != "replica-1" || got.Lock != "slow" || !got.Lost.IsZero() || got.Error != "" {
			t.Errorf("the leases are %+v", h.Leases)
		}
		if !got.Asked.Equal(start) || !got.Granted.Equal(start.Add(time.Second)) || !got.Released.Equal(start.Add(2*time.Second)) || got.Token != 7 {
			t.Errorf("asked at %s, the lease is %+v", start, got)
		}
	})
}

// Without a record a lock is itself.
func TestALockWithoutARecordIsNotWrapped(t *testing.T) {
	lab := must.Get(failpoint.Open(failpoint.Options{}))(t)
	own := process.New()
	should.Be(t, lab.Record("mutex", own), lock.Locker(own), "the lock is")
	should.Do(t, lab.Close())
	if _, err := failpoint.Open(failpoint.Options{History: filepath.Join(t.TempDir(), "no", "folder")}); err == nil || !strings.Contains(err.Error(), "lab.history") {
		t.Errorf("a record that cannot be written: %v", err)
	}
}

// talkative is a lock that tells what it does, with leases that end after so long; 0: never.
type talkative struct {
	began time.Time
	ttl   time.Duration
	later func(lock.Note) // of the last lease
}

func (l *talkative) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	lock.Tell(ctx, lock.Note{At: l.began, Took: time.Millisecond, What: lock.NoVote, By: "5", Err: context.DeadlineExceeded})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Woken, By: lock.ByWatch})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Placed, Key: "node-7"})
	held := lock.NewHeld(7, func(context.Context) error { return nil })
	held.ExpiresAfter(l.began, l.ttl)
	l.later = func(n lock.Note) { lock.Tell(ctx, n) }
	return held, nil
}

func TestWhatALockTellsIsRecordedWithItsLease(t *testing.T) {
	lab, path := open(t)
	began := time.Now().Add(-time.Second).Round(0)
	l := &talkative{began: began, ttl: time.Minute}
	recorded := lab.Record("redlock", l)
	must.Get(recorded.Acquire(t.Context(), "goods/1"))(t)
	l.later(lock.Note{At: began, What: lock.Renewed, TTL: time.Hour, Left: time.Second, Took: time.Minute})
	l.ttl = 0
	must.Get(recorded.Acquire(t.Context(), "goods/2"))(t)
	h := read(t, path)
	if len(h.Leases) != 2 {
		t.Fatalf("leases are %+v, want two", h.Leases)
	}
	first, second := h.Leases[0], h.Leases[1]
	if first.Key != "node-7" || first.TTL != time.Minute || !first.Expires.Equal(began.Add(time.Minute)) {
		t.Errorf("the lease has key %q, TTL %s and expires at %s, want node-7, 1m0s and %s", first.Key, first.TTL, first.Expires, began.Add(time.Minute))
	}
	if n := first.Notes; len(n) != 3 || n[0].What != history.NoVote || n[0].By != "5" || n[0].Error == "" || n[1].By != lock.ByWatch || n[2].What != history.Renewed {
		t.Errorf("notes are %+v, want a vote that did not come, a wake-up and a renewal", n)
	}
	if n := first.Notes; n[0].Took != time.Millisecond || n[2].TTL != time.Hour || n[2].Left != time.Second || n[2].Took != time.Minute || !n[2].At.Equal(began) {
		t.Errorf("notes are %+v, want the times that the lock has told", n)
	}
	if first.Holder != "replica-1" || first.Lock != "redlock" || first.Notes[2].Holder != first.Holder || first.Notes[2].Lock != first.Lock {
		t.Errorf("the lease is %+v, want one of replica-1 and redlock, and so its notes", first)
	}
	if content, err := os.ReadFile(path); err != nil || strings.Count(string(content), "left_ns") != 2 {
		t.Errorf("the record (%v) does not tell once what is left of a lease, and once of its renewal:\n%s", err, content)
	}
	if second.TTL != 0 || !second.Expires.IsZero() {
		t.Errorf("the lease that does not end by itself has TTL %s and expires at %s", second.TTL, second.Expires)
	}
}

// purchasing has a test binary make one purchase and end, as a replica does: it names the
// fault and the file of the record.
const purchasing = "STOCKD_FAILPOINT_TEST"

func TestMain(m *testing.M) {
	if do, path, ok := strings.Cut(os.Getenv(purchasing), " "); ok {
		purchase(do, path)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// purchase reaches a fault with a request that has ended, and clears the faults.
func purchase(do, path string) {
	l, err := failpoint.Open(failpoint.Options{Replica: "replica-1", History: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		os.Exit(1)
	}
	l.SetFault(failpoint.Fault{Do: do, IgnoreCancel: true})
	ctx, end := context.WithCancel(context.Background())
	end()
	ctx = l.Between(ctx, "naive", 1)
	l.ClearFaults() // it would wait for a purchase that is about to stop the process
	if ctx.Err() != nil || l.Close() != nil {
		os.Exit(1)
	}
}

// A pause stops the whole process, which goes on when it is continued; a crash ends it. That it
// was reached is recorded before.
func TestAFaultStopsOrKillsTheProcess(t *testing.T) {
	for do, want := range map[string][]string{
		failpoint.Pause: {failpoint.Paused, failpoint.WentOn}, failpoint.Crash: {failpoint.Killed},
	} {
		path := filepath.Join(t.TempDir(), "history.jsonl")
		self := exec.CommandContext(t.Context(), os.Args[0])
		self.Env = append(os.Environ(), purchasing+"="+do+" "+path)
		must.Do(t, self.Start())
		marks := func() (marks []string) {
			for _, m := range read(t, path).Marks {
				marks = append(marks, m.What)
			}
			return marks
		}
		var status syscall.WaitStatus
		if do == failpoint.Pause {
			_, err := syscall.Wait4(self.Process.Pid, &status, syscall.WUNTRACED, nil)
			if err != nil || !status.Stopped() || !slices.Equal(marks(), want[:1]) {
				t.Errorf("a pause: status %x (%v), marks %q", status, err, marks())
			}
			should.Do(t, self.Process.Signal(syscall.SIGCONT))
		}
		_ = self.Wait() // how it ended is below
		ended, ok := self.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || ended.Signaled() != (do == failpoint.Crash) || do == failpoint.Pause && ended.ExitStatus() != 0 || !slices.Equal(marks(), want) {
			t.Errorf("%s: it ended with %s, and marks are %q, want %q", do, self.ProcessState, marks(), want)
		}
	}
}

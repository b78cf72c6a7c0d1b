package history_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// at is a time of the test, so many seconds after it began.
func at(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func event(id string, seconds int, what history.EventKind, token uint64) history.Line {
	return history.Line{Lease: &history.Event{
		At: at(seconds), ID: id, Name: "goods/1", Holder: "replica-1", Lock: "redis-lua", What: what, Token: token,
	}}
}

func request(client, seconds int) history.Line {
	return history.Line{Request: &history.Request{Client: client, Start: at(seconds), End: at(seconds + 1), Outcome: history.Sold}}
}

// written is a file of these lines.
func written(t *testing.T, lines ...history.Line) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w := must.Get(history.Create(path))(t)
	for _, line := range lines {
		must.Do(t, w.Add(line))
	}
	must.Do(t, w.Close())
	return path
}

func read(t *testing.T, paths ...string) *history.History {
	t.Helper()
	return must.Get(history.Read(paths...))(t)
}

// Every field of every line is read as it was written: no two values of a kind are equal. The last value of a figure counts.
func TestEveryFieldOfALineIsKept(t *testing.T) {
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		n++
		switch v.Interface().(type) {
		case time.Time:
			v.Set(reflect.ValueOf(at(n)))
			return
		case *int64:
			v.Set(reflect.ValueOf(new(int64(n))))
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for _, field := range v.Fields() {
				fill(field)
			}
		case reflect.String:
			v.SetString(fmt.Sprint("text ", n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Float64:
			v.SetFloat(float64(n))
		case reflect.Uint64:
			v.SetUint(uint64(n))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0))
			fill(v.Index(1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		default:
			v.SetInt(int64(n))
		}
	}
	var line history.Line
	fill(reflect.ValueOf(&line).Elem())
	asked, renewed := *line.Lease, *line.Lease
	asked.What, renewed.What = history.Asked, history.Renewed
	granted := asked
	granted.At, granted.What, granted.Name, granted.Holder = at(2000), history.Granted, "another", "another"
	h := read(t, written(t,
		history.Line{Request: line.Request}, history.Line{Mark: line.Mark}, history.Line{Audit: line.Audit}, history.Line{Sample: line.Sample},
		history.Line{Figure: &history.Figure{Name: line.Figure.Name, Value: -1}}, history.Line{Figure: line.Figure}, history.Line{Trace: line.Trace}, history.Line{Lease: &asked}, history.Line{Lease: &granted}, history.Line{Lease: &renewed},
	))
	want := &history.History{
		Requests: []history.Request{*line.Request}, Marks: []history.Mark{*line.Mark}, Audits: []history.Audit{*line.Audit}, Samples: []history.Sample{*line.Sample},
		Figures: map[string]float64{line.Figure.Name: line.Figure.Value}, Traces: []history.Trace{*line.Trace},
		Leases: []history.Lease{{
			ID: asked.ID, Name: asked.Name, Holder: asked.Holder, Lock: asked.Lock, Token: asked.Token, Shared: asked.Shared, Asked: asked.At, Granted: at(2000),
			Error: asked.Error, Request: asked.Request, Key: asked.Key, TTL: asked.TTL, Expires: at(2000).Add(asked.Left), Notes: []history.Event{renewed},
		}},
	}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("read\n%+v, want\n%+v", h, want)
	}
}

func TestEventsFoldIntoLeases(t *testing.T) {
	h := read(t, written(t,
		event("late", 5, history.Asked, 0),
		event("late", 6, history.GaveUp, 0),
		event("kept", 2, history.Asked, 0),
		event("kept", 3, history.Granted, 8),
		event("lost", 1, history.Asked, 0),
		event("lost", 1, history.Granted, 7),
		event("lost", 2, history.Lost, 7),
		event("lost", 4, history.Released, 7),
	))
	if len(h.Leases) != 3 {
		t.Fatalf("%d leases, want 3: %+v", len(h.Leases), h.Leases)
	}
	lost, kept, late := h.Leases[0], h.Leases[1], h.Leases[2]
	if lost.ID != "lost" || lost.Token != 7 || !lost.Lost.Equal(at(2)) || !lost.Released.Equal(at(4)) || !lost.End().Equal(at(2)) {
		t.Errorf("the lease that was lost is %+v", lost)
	}
	if kept.ID != "kept" || kept.Token != 8 || !kept.Granted.Equal(at(3)) || !kept.Expires.IsZero() || !kept.End().IsZero() {
		t.Errorf("the lease that never ended is %+v", kept)
	}
	if late.ID != "late" || !late.Granted.IsZero() || !late.GaveUp.Equal(at(6)) {
		t.Errorf("the lease that was not granted is %+v", late)
	}
}

func TestSeveralFilesAreOneHistoryInTheOrderOfTime(t *testing.T) {
	first := written(t, request(1, 4), request(2, 1), event("1", 3, history.Asked, 0))
	second := written(t, request(3, 2), event("1", 2, history.Asked, 0))
	h := read(t, first, second)
	clients := make([]int, len(h.Requests))
	for i, r := range h.Requests {
		clients[i] = r.Client
	}
	should.Equal(t, clients, []int{2, 3, 1}, "the order of the clients")
	if len(h.Leases) != 2 || !h.Leases[0].Asked.Equal(at(2)) {
		t.Errorf("leases with the same id in two files are %+v, want two", h.Leases)
	}
}

// change rewrites a file by hand.
func change(t *testing.T, path string, by func(string) string) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	must.Do(t, os.WriteFile(path, []byte(by(string(content))), 0o600))
}

func cutTheEnd(s string) string { return s[:len(s)-20] }

func TestALineThatAKillCutOffIsLeftOut(t *testing.T) {
	path := written(t, request(1, 1), request(2, 2))
	change(t, path, cutTheEnd)
	h := read(t, path)
	should.Be(t, len(h.Requests), 1, "requests that were read")
}

func TestAFileIsGoneOnWithBehindACutLine(t *testing.T) {
	path := written(t, request(1, 1), request(2, 2))
	change(t, path, cutTheEnd)
	w := must.Get(history.Append(path))(t)
	must.Do(t, errors.Join(w.Add(request(3, 3)), w.Close()))
	h := read(t, path)
	if len(h.Requests) != 2 || h.Requests[1].Client != 3 {
		t.Errorf("requests are %+v", h.Requests)
	}
}

func TestABrokenFileIsRefusedWithTheLine(t *testing.T) {
	for name, by := range map[string]func(string) string{
		"line 1: a line cut off in the middle": func(s string) string { return strings.Replace(s, "\"outcome\"", "\n", 1) },
		"line 1: a line that says nothing":     func(s string) string { return "{}\n" + s },
		"line 1: no history at all":            func(string) string { return "garbage" },
		"line 2: an event of no lease":         func(s string) string { return strings.Replace(s, `"asked"`, `"granted"`, 1) },
		"line 4: a lease asked for twice":      func(s string) string { return s + s },
		"line 3: an unknown kind of event": func(s string) string {
			return s + strings.Replace(s[strings.LastIndex(s, `{"lease"`):], "asked", "stolen", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, request(1, 1), event("1", 2, history.Asked, 0))
			change(t, path, by)
			_, err := history.Read(path)
			line, _, _ := strings.Cut(name, ": ")
			if !errors.Is(err, history.ErrBroken) || !strings.Contains(err.Error(), line+":") || !strings.Contains(err.Error(), path) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestGoroutinesMayWriteToOneFile(t *testing.T) {
	path := written(t)
	w := must.Get(history.Append(path))(t)
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for j := range 100 {
				should.Do(t, w.Add(request(i, j)))
			}
		})
	}
	writers.Wait()
	must.Do(t, w.Close())
	should.Be(t, len(read(t, path).Requests), 800, "lines that were read")
}

// Each row is a lease that was asked for at 1 and what ended it, and when its holder knew.
func TestALeaseEndsWithItsLossOrItsRelease(t *testing.T) {
	for name, c := range map[string]struct{ lost, released, want int }{
		"neither": {0, 0, 0}, "lost": {3, 0, 3}, "released": {0, 3, 3}, "lost and released": {3, 4, 3}, "released and lost": {4, 3, 3},
	} {
		when := func(seconds int) (moment time.Time) {
			if seconds > 0 {
				moment = at(seconds)
			}
			return moment
		}
		if got := (history.Lease{Lost: when(c.lost), Released: when(c.released)}).End(); !got.Equal(when(c.want)) {
			t.Errorf("%s: it ended at %s, want %s", name, got, when(c.want))
		}
	}
}

func TestEverythingIsInTheOrderOfTime(t *testing.T) {
	failed := event("x", 5, history.GaveUp, 0)
	failed.Lease.Error = "busy"
	h := read(t, written(t,
		history.Line{Mark: &history.Mark{At: at(2)}}, history.Line{Mark: &history.Mark{At: at(1)}},
		history.Line{Audit: &history.Audit{At: at(2)}}, history.Line{Audit: &history.Audit{At: at(1)}},
		history.Line{Sample: &history.Sample{At: at(2)}}, history.Line{Sample: &history.Sample{At: at(1)}},
		event("x", 4, history.Asked, 0), failed,
	))
	if !h.Marks[0].At.Equal(at(1)) || !h.Audits[0].At.Equal(at(1)) || !h.Samples[0].At.Equal(at(1)) {
		t.Errorf("%+v", h)
	}
	should.Be(t, h.Leases[0].Error, "busy", "why the lease was not granted")
}

// A run that goes on copies what began since it did: of a lease that was asked for before,
// nothing, and of what cannot be told, all.
func TestACopyHasWhatHappenedSince(t *testing.T) {
	from := written(t,
		event("old", 1, history.Asked, 0), event("old", 6, history.Granted, 0),
		event("new", 5, history.Asked, 0), event("new", 7, history.Granted, 3),
		history.Line{Mark: &history.Mark{At: at(4), What: "before"}}, history.Line{Mark: &history.Mark{At: at(5), What: "then"}},
		history.Line{Trace: &history.Trace{Request: "before", Steps: []history.Step{{At: at(6)}, {At: at(4)}}}},
		history.Line{Trace: &history.Trace{Request: "then", Steps: []history.Step{{At: at(6)}, {At: at(5)}}}},
		history.Line{Figure: &history.Figure{Name: "tries", Value: 3}}, request(1, 9),
	)
	change(t, from, func(s string) string { return s + `{"mark": {"what": "still wri` })
	path := written(t, request(2, 1))
	w := must.Get(history.Append(path))(t)
	must.Do(t, errors.Join(w.Copy(from, at(5)), w.Close()))
	h := read(t, path)
	if len(h.Leases) != 1 || h.Leases[0].ID != "new" || h.Leases[0].Token != 3 || len(h.Marks) != 1 || h.Marks[0].What != "then" || len(h.Traces) != 1 || h.Traces[0].Request != "then" ||
		h.Figures["tries"] != 3 || len(h.Requests) != 2 {
		t.Errorf("copied %+v", h)
	}
	change(t, from, func(s string) string { return "garbage\n" + s })
	w = must.Get(history.Append(path))(t)
	should.Fail(t, w.Copy(from, at(5)), history.ErrBroken, "a broken file")
	should.Fail(t, w.Copy("/nonexistent/history", at(5)), os.ErrNotExist, "no file")
	should.Do(t, w.Close())
	should.Fail(t, w.Add(request(3, 3)), os.ErrClosed, "a line after the end")
	should.Fail(t, w.Close(), os.ErrClosed, "a second end")
}

// A file that is created is empty; one that is appended to keeps what it has.
func TestAFileIsCreatedAnew(t *testing.T) {
	path := written(t, request(1, 1))
	for _, c := range []struct {
		open func(string) (*history.Writer, error)
		want int
	}{{history.Append, 2}, {history.Create, 1}} {
		w := must.Get(c.open(path))(t)
		must.Do(t, errors.Join(w.Add(request(2, 2)), w.Close()))
		should.Be(t, len(read(t, path).Requests), c.want, "requests")
	}
}

func TestAFileThatCannotBeOpenedIsAnError(t *testing.T) {
	const path = "/nonexistent/history"
	_, created := history.Create(path)
	_, appended := history.Append(path)
	_, read := history.Read(path)
	for _, err := range []error{created, appended, read} {
		should.Fail(t, err, os.ErrNotExist, "it")
	}
}

// Each row is what happened at 5, or from 3 to 8, in a history.
func TestAHistoryExtendsOverItsEvents(t *testing.T) {
	for name, c := range map[string]struct {
		h        history.History
		from, to time.Time
	}{
		"nothing":  {from: time.Time{}, to: time.Time{}},
		"requests": {history.History{Requests: []history.Request{{Start: at(4), End: at(8)}, {Start: at(3), End: at(5)}}}, at(3), at(8)},
		"a lease":  {history.History{Leases: []history.Lease{{Asked: at(3), Granted: at(4), Released: at(8)}}}, at(3), at(8)},
		"a loss":   {history.History{Leases: []history.Lease{{Asked: at(3), Lost: at(8)}}}, at(3), at(8)},
		"a wait":   {history.History{Leases: []history.Lease{{Asked: at(3), GaveUp: at(8)}}}, at(3), at(8)},
		"marks":    {history.History{Marks: []history.Mark{{At: at(3)}, {At: at(4), Until: at(8)}}}, at(3), at(8)},
		"a sample": {history.History{Samples: []history.Sample{{At: at(5)}}}, at(5), at(5)},
		"an audit": {history.History{Audits: []history.Audit{{At: at(9)}}, Samples: []history.Sample{{At: at(5)}}}, at(5), at(5)},
	} {
		if from, to := c.h.Extent(); !from.Equal(c.from) || !to.Equal(c.to) {
			t.Errorf("%s: from %s to %s, want %s to %s", name, from, to, c.from, c.to)
		}
	}
}

func note(id string, seconds int, what history.EventKind, change func(*history.Event)) history.Line {
	line := event(id, seconds, what, 0)
	if change != nil {
		change(line.Lease)
	}
	return line
}

// Notes come in any order, and also when the lease is over.
func TestNotesBelongToTheirLease(t *testing.T) {
	h := read(t, written(t,
		note("1", 1, history.Asked, func(e *history.Event) { e.Request = "r" }),
		note("1", 2, history.VotedFor, func(e *history.Event) { e.By = "1" }),
		note("1", 3, history.Granted, func(e *history.Event) { e.Key, e.TTL, e.Left = "stockd:{1}:redlock", 3*time.Second, 2*time.Second }),
		note("1", 6, history.NotRenewed, func(e *history.Event) { e.Error = "no answer" }),
		note("1", 4, history.Renewed, func(e *history.Event) { e.TTL = 3 * time.Second }),
		event("1", 8, history.Released, 7),
		note("1", 3, history.NoVote, func(e *history.Event) { e.By, e.Error = "5", "timeout" }),
	))
	if len(h.Leases) != 1 {
		t.Fatalf("leases are %+v, want one", h.Leases)
	}
	l := h.Leases[0]
	if l.Request != "r" || l.Key != "stockd:{1}:redlock" || l.TTL != 3*time.Second || !l.Released.Equal(at(8)) {
		t.Errorf("the lease is %+v", l)
	}
	should.Be(t, l.Error, "", "the lease has of a note the error")
	want := []history.EventKind{history.VotedFor, history.NoVote, history.Renewed, history.NotRenewed}
	for i, n := range l.Notes {
		if len(l.Notes) != len(want) || n.What != want[i] {
			t.Fatalf("notes are %+v, want %v", l.Notes, want)
		}
	}
	for seconds, expires := range map[int]int{3: 5, 4: 7, 8: 7} { // 3 s after the grant, or the renewal
		if got := l.ExpiresAt(at(seconds)); !got.Equal(at(expires)) {
			t.Errorf("at %d it expires at %s, want %s", seconds, got, at(expires))
		}
	}
}

// Each row is a lease of three seconds that was granted at 2, and when it was over before its
// holder let go of it.
func TestALeaseIsOutlivedByAHolderThatKeepsIt(t *testing.T) {
	renewed := history.Event{At: at(4), What: history.Renewed, TTL: 3 * time.Second}
	for name, c := range map[string]struct {
		l    history.Lease
		want time.Time
	}{
		"released in time":              {history.Lease{Released: at(4)}, time.Time{}},
		"released at its end":           {history.Lease{Released: at(5)}, time.Time{}},
		"released late":                 {history.Lease{Released: at(7)}, at(5)},
		"lost late":                     {history.Lease{Lost: at(6), Released: at(7)}, at(5)},
		"renewed, and released in time": {history.Lease{Released: at(7), Notes: []history.Event{renewed}}, time.Time{}},
		"renewed, and released late":    {history.Lease{Released: at(8), Notes: []history.Event{renewed}}, at(7)},
		"never released":                {history.Lease{}, at(5)},
		"renewed, and never released":   {history.Lease{Notes: []history.Event{renewed}}, at(7)},
	} {
		c.l.Granted, c.l.Expires, c.l.TTL = at(2), at(5), 3*time.Second
		if got := c.l.Outlived(); !got.Equal(c.want) {
			t.Errorf("%s: outlived at %s, want %s", name, got, c.want)
		}
	}
	if got := (history.Lease{Granted: at(2), Released: at(7)}).Outlived(); !got.IsZero() {
		t.Errorf("a lease that does not end by itself is outlived at %s", got)
	}
}

func TestATraceEndsWithTheStepThatEndsLast(t *testing.T) {
	trace := history.Trace{Steps: []history.Step{{At: at(1), Took: 5 * time.Second}, {At: at(2), Took: time.Second}}}
	if got := trace.End(); !got.Equal(at(6)) {
		t.Errorf("it ends at %s, want %s", got, at(6))
	}
}

func TestTracesAreInTheOrderOfTime(t *testing.T) {
	trace := func(id string, seconds int) history.Line {
		return history.Line{Trace: &history.Trace{Request: id, Steps: []history.Step{{At: at(seconds + 1)}, {At: at(seconds), What: history.StepRead}}}}
	}
	h := read(t, written(t, trace("late", 5), trace("early", 1)))
	if len(h.Traces) != 2 || h.Traces[0].Request != "early" {
		t.Errorf("traces are %+v", h.Traces)
	}
}

// Whatever is in a file is rejected as broken, or is a history that says the same
// when it is written again.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"request":{"start":"2026-01-02T03:04:05Z","end":"2026-01-02T03:04:06Z","client":1,"strategy":"naive","goods_id":1,"quantity":1,"outcome":"sold","remaining":3}}` + "\n",
		`{"lease":{"at":"2026-01-02T03:04:05Z","id":"1","name":"n","holder":"h","lock":"l","what":"asked"}}` + "\n" +
			`{"lease":{"at":"2026-01-02T03:04:06Z","id":"1","what":"granted","token":7}}` + "\n",
		`{"trace":{"request":"r","replica":"one","steps":[{"at":"2026-01-02T03:04:05Z","took_ns":5,"what":"read"}]}}` + "\n",
		`{"figure":{"name":"wake-ups","value":1e300}}` + "\n", `{"mark":{}}`, `{"audit":{}}` + "\n" + `{"sample":{}}`, "{}\n", "\n", "null\n", `{"request"`, "[]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "history.jsonl")
		must.Do(t, os.WriteFile(path, content, 0o600))
		h, err := history.Read(path)
		if err != nil {
			if !errors.Is(err, history.ErrBroken) {
				t.Error(err)
			}
			return
		}
		again := must.Get(history.Read(write(t, h)))(t)
		again.Leases = h.Leases // leases are written as their events
		if !reflect.DeepEqual(again, h) {
			t.Errorf("%+v is read back as %+v", h, again)
		}
	})
}

// write writes all of a history but its leases.
func write(t *testing.T, h *history.History) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "again.jsonl")
	w := must.Get(history.Create(path))(t)
	add := func(line history.Line) {
		must.Do(t, w.Add(line))
	}
	for i := range h.Requests {
		add(history.Line{Request: &h.Requests[i]})
	}
	for i := range h.Marks {
		add(history.Line{Mark: &h.Marks[i]})
	}
	for i := range h.Audits {
		add(history.Line{Audit: &h.Audits[i]})
	}
	for i := range h.Samples {
		add(history.Line{Sample: &h.Samples[i]})
	}
	for i := range h.Traces {
		add(history.Line{Trace: &h.Traces[i]})
	}
	for name, value := range h.Figures {
		add(history.Line{Figure: &history.Figure{Name: name, Value: value}})
	}
	must.Do(t, w.Close())
	return path
}

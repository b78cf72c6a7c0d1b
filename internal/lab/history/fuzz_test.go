package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
)

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
		again, err := history.Read(write(t, h))
		must.Do(t, err)
		again.Leases, again.Cut = h.Leases, h.Cut // leases are written as their events
		if !reflect.DeepEqual(again, h) {
			t.Errorf("%+v is read back as %+v", h, again)
		}
	})
}

// write writes all of a history but its leases.
func write(t *testing.T, h *history.History) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "again.jsonl")
	w, err := history.Create(path)
	must.Do(t, err)
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

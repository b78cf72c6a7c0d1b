package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// history of a first and a second holder, by the seconds in which each was granted, lost and released the name; 0 where
// it did not come to that.
func recorded(first, second [3]int, tokens ...uint64) *history.History {
	at := func(s int) (t time.Time) {
		if s > 0 {
			t = time.Unix(int64(s), 0)
		}
		return t
	}
	h := &history.History{Figures: make(map[string]float64)}
	for i, times := range [][3]int{first, second} {
		l := history.Lease{ID: []string{"1", "2"}[i], Name: "n", Lock: "l", Holder: []string{"first", "second"}[i], Asked: at(1), Granted: at(times[0]), Lost: at(times[1]), Released: at(times[2])}
		if len(tokens) > 0 {
			l.Token = tokens[i]
		}
		h.Leases = append(h.Leases, l)
	}
	return h
}

func markOf(question string, promise string, h *history.History) Mark {
	c := Cell{Question: question, Promise: promise}
	for _, q := range Questions() {
		if q.Name == question {
			c.judge(q, h)
		}
	}
	return c.Mark
}

func TestAMarkIsOfWhatWasRecordedAndOfWhatIsPromised(t *testing.T) {
	alone, together := recorded([3]int{1, 0, 3}, [3]int{3, 0, 4}), recorded([3]int{1, 0, 3}, [3]int{2, 0, 4})
	for _, c := range []struct {
		question, promise string
		h                 *history.History
		want              Mark
	}{
		{"outlasts", "", alone, Holds},
		{"outlasts", "it is extended", together, Broken},
		{"outlasts", "", together, NotPromised},
		{"learns", "", recorded([3]int{1, 2, 5}, [3]int{3, 0, 6}), Holds},
		{"learns", "", recorded([3]int{1, 4, 5}, [3]int{3, 0, 6}), NotPromised},
		{"learns", "", recorded([3]int{1, 0, 5}, [3]int{3, 0, 6}), NotPromised},
		{"learns", "", recorded([3]int{1, 0, 5}, [3]int{}), Holds},
		{"paused", "", together, NotPromised},
		{"paused", "", recorded([3]int{1, 0, 3}, [3]int{2, 0, 4}, 7, 8), Holds},
		{"paused", "", recorded([3]int{1, 0, 3}, [3]int{2, 0, 4}, 8, 8), NotPromised},
		{"token", "", alone, NotPromised},
		{"token", "", recorded([3]int{1, 0, 3}, [3]int{3, 0, 4}, 7, 8), Holds},
		{"token", "a token", recorded([3]int{1, 0, 3}, [3]int{3, 0, 4}, 8, 7), Broken},
		{"compaction", "", alone, Holds},
		{"compaction", "", recorded([3]int{1, 0, 3}, [3]int{}), NotPromised},
		{"handoffs", "", alone, Failed}, // nothing was measured
	} {
		should.Be(t, markOf(c.question, c.promise, c.h), c.want, c.question, "promised", c.promise)
	}
}

// A fault that did not come about proves nothing.
func TestAFaultThatWasNotMetIsNoAnswer(t *testing.T) {
	h := recorded([3]int{1, 0, 3}, [3]int{3, 0, 4})
	h.Figures["replies_lost"] = 0
	should.Be(t, markOf("renew-reply", "it is extended", h), NotApplicable, "the mark")
	should.Be(t, markOf("release-reply", "free at once", h), Failed, "the mark")
}

// Every library can be opened, and answers questions that exist.
func TestTheListIsWhole(t *testing.T) {
	for _, l := range Libraries() {
		if l.Open == nil || l.Docs == "" {
			t.Errorf("%s has no adapter or no documents", l.Name)
		}
		for question := range l.Promises {
			_, err := Choose(Questions(), func(q Question) string { return q.Name }, []string{question})
			should.Fail(t, err, nil, "… promises an answer to", l.Name, question)
		}
	}
}

// A cell without an answer is no success.
func TestATrialWithoutAnAnswerFails(t *testing.T) {
	r := Report{Cells: []Cell{{Library: "a", Question: "crowd", Mark: Holds}}}
	should.Do(t, r.Unanswered())
	if r.Cells[0].Mark = Failed; r.Unanswered() == nil {
		t.Error("a cell is ?, and there is no error")
	}
}

// The documents show what the program has, of all libraries, in both languages.
func TestThePublishedTrialIsThatOfTheDocuments(t *testing.T) {
	var r Report
	err := json.Unmarshal(Published(), &r) //nolint:musttag // it has no histories
	if err != nil || len(r.Libraries) != len(Libraries()) || r.Unanswered() != nil {
		t.Fatalf("%d libraries, %v, %v", len(r.Libraries), r.Unanswered(), err)
	}
	for file, write := range map[string]func(io.Writer) error{"trial.md": r.Markdown, "trial.zh-CN.md": r.InChinese} {
		var want bytes.Buffer
		got, err := os.ReadFile("../../../docs/" + file)
		must.Do(t, errors.Join(err, write(&want)))
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("docs/%s is another one", file)
		}
	}
}

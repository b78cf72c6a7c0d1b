package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
)

// note is what happened to a lease.
func note(at float64, what history.EventKind, by string) history.Event {
	return history.Event{At: ms(at), What: what, By: by, TTL: 60 * time.Millisecond}
}

// The first is renewed and then not, and works on; the second waits, and is woken.
func TestTheTimelineShowsRenewalsAndTheEndOfTheTTL(t *testing.T) {
	first, second := lease("replica-1", 0, 200), lease("replica-2", 190, 300)
	first.TTL, first.Expires = 60*time.Millisecond, ms(60)
	first.Notes = []history.Event{note(20, history.Renewed, ""), note(40, history.Renewed, ""), note(60, history.NotRenewed, "")}
	second.Notes = []history.Event{note(150, history.Woken, "watch")}
	p := Timelines(&history.History{Leases: []history.Lease{first, second}})[0]
	for class, want := range map[string]int{"renewed": 2, "unrenewed": 1, "expired": 1, "woke": 1} {
		if n := drawn(p, class); n != want {
			t.Errorf("%d signs are %s, want %d", n, class, want)
		}
	}
	for _, s := range p.shapes {
		if s.Class == "expired" && (s.X < 33 || s.X > 34) { // one TTL after the last renewal, of 300 ms
			t.Errorf("the TTL is over at %v%% of the picture, want a third", s.X)
		}
	}
	if all := texts(t, p); !strings.Contains(all, "not renewed") || !strings.Contains(all, "▼") {
		t.Errorf("the legend lacks the signs:\n%s", all)
	}
}

// A lease that ended before its TTL was over has not outlived it.
func TestALeaseThatEndedInTimeHasNoSign(t *testing.T) {
	l := lease("replica-1", 0, 50)
	l.TTL, l.Expires = 60*time.Millisecond, ms(60)
	if n := drawn(Timelines(&history.History{Leases: []history.Lease{l, lease("replica-2", 70, 300)}})[0], "expired"); n != 0 {
		t.Errorf("%d leases have outlived their TTL", n)
	}
}

// trace is a request whose steps of 10 ms follow each other.
func trace(start float64, kinds ...history.StepKind) history.Trace {
	t := history.Trace{Replica: "replica-1"}
	for i, kind := range kinds {
		t.Steps = append(t.Steps, history.Step{At: ms(start + 10*float64(i)), Took: 10 * time.Millisecond, What: kind})
	}
	t.Steps = append(t.Steps, history.Step{At: ms(start), Took: 10 * time.Millisecond * time.Duration(len(kinds)), What: history.StepPurchase})
	return t
}

func TestStepsShowWhatRequestsDidTogether(t *testing.T) {
	p := Steps(&history.History{Traces: []history.Trace{
		trace(0, history.StepAcquire, history.StepRead, history.StepWrite, history.StepRelease, history.StepCommit),
		trace(5, history.StepAcquire, history.StepRead),
		trace(900, history.StepRead), // alone
	}})
	all := texts(t, p)
	for _, want := range []string{"request 1", "request 2", "2 requests of 3 that were traced", "the longest has 6 steps", "1 read, 1 write", "acquire: it waits for the lock", "commits"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "request 3") || strings.Contains(all, "rolls back") {
		t.Errorf("it has a request that was alone, or a step that was not done:\n%s", all)
	}
}

// Of very many tries the last ones are drawn, each to be seen.
func TestStepsShowTheLastOfVeryMany(t *testing.T) {
	kinds := make([]history.StepKind, 0, 301)
	for range 100 {
		kinds = append(kinds, history.StepRead, history.StepWrite, history.StepRollback)
	}
	p := Steps(&history.History{Traces: []history.Trace{trace(0, append(kinds, history.StepCommit)...)}})
	if n := drawn(p, "rollback"); n < 10 || n > 20 {
		t.Errorf("%d rollbacks are drawn of 100, want those among the last %d steps", n, mostSteps)
	}
	if all := texts(t, p); !strings.Contains(all, "100 rollbacks") || !strings.Contains(all, "is not drawn") {
		t.Errorf("it does not say what is left out:\n%s", all)
	}
}

// The first has three of five; the second asks three times, and has it when the first is gone.
func TestVotesShowWhatEachMasterAnswered(t *testing.T) {
	first, second := lease("first", 3, 50), lease("second", 61, 90)
	refused := make([]history.Event, 0, 5)
	for i, master := range []string{"1", "2", "3", "4", "5"} {
		no, mine := history.VotedAgainst, history.VotedFor
		if i > 2 {
			no, mine = history.VotedFor, history.NoVote
		}
		first.Notes = append(first.Notes, note(1, mine, master))
		refused = append(refused, note(0, no, master))
	}
	for _, at := range []float64{10, 20, 30} {
		for _, vote := range refused {
			vote.At = ms(at)
			second.Notes = append(second.Notes, vote)
		}
	}
	for _, master := range []string{"5", "4", "3", "2", "1"} {
		second.Notes = append(second.Notes, note(60, history.VotedFor, master))
	}
	p := Votes(&history.History{Leases: []history.Lease{first, second}})
	all := texts(t, p)
	for _, want := range []string{"3 of 5, held", "2 of 5, 3 times until ", "5 of 5, held", "5 rounds of votes, of which 2 granted a lease"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q:\n%s", want, all)
		}
	}
	for class, want := range map[string]int{"vote-for": 3 + 2 + 5, "vote-against": 3, "vote-none": 2} {
		if n := drawn(p, class); n != want {
			t.Errorf("%d votes are %s, want %d", n, class, want)
		}
	}
}

func TestWakesAreCountedByTheirRelease(t *testing.T) {
	first, second, third := lease("a", 0, 10), lease("b", 12, 20), lease("c", 22, 30)
	second.Notes = []history.Event{note(5, history.Woken, "watch"), note(11, history.Woken, "watch")}
	third.Notes = []history.Event{note(11, history.Woken, "watch"), note(21, history.Woken, "watch")}
	h := &history.History{Leases: []history.Lease{first, second, third}}
	if got := wokenBy(h); len(got) != 3 || got[0] != 2 || got[1] != 1 || got[2] != 0 {
		t.Errorf("releases woke %v, want 2, 1 and 0", got)
	}
	if all := texts(t, Wakes(h)); !strings.Contains(all, "3 releases, after which waiters were woken 3 times in all, and twice at most after one") {
		t.Errorf("it says:\n%s", all)
	}
}

func TestRowsShowWhatIsLocked(t *testing.T) {
	figures := make(map[string]float64)
	for _, c := range innodb.Combinations() {
		for _, place := range c.Index.Places() {
			figures[c.String()+"."+place.Name] = 0
		}
	}
	figures["plain_rr.row_10"], figures["plain_rr.gap_10_15"] = 1, 1
	p := Rows(&history.History{Figures: figures})
	if n := drawn(p, "over"); n != 2 {
		t.Errorf("%d places are locked, want a row and a gap", n)
	}
	if all := texts(t, p); !strings.Contains(all, "2 of ") || !strings.Contains(all, "index, REPEATABLE READ") {
		t.Errorf("it says:\n%s", all)
	}
	for _, c := range innodb.Combinations() { // none is forgotten
		for _, place := range c.Index.Places() {
			if place.Kind != innodb.Entry && !strings.Contains(strings.Join(tablePlaces(), " ")+" ", place.Name+" ") {
				t.Errorf("%s has no place in the picture", place.Name)
			}
		}
	}
}

func TestNothingRecordedIsNoPicture(t *testing.T) {
	h := &history.History{Leases: []history.Lease{{Holder: "a", Asked: ms(0)}}}
	if Steps(h) != nil || Votes(h) != nil || Wakes(h) != nil || Rows(h) != nil {
		t.Error("a picture is drawn of nothing")
	}
}

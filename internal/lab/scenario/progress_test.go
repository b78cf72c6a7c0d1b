package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

func TestMain(m *testing.M) {
	servers.SuperviseIfAsked()
	os.Exit(m.Run())
}

// diary has what is made known of a run, in its order.
type diary struct {
	entries []string
	done    func() // is called after each experiment
}

func (d *diary) notef(format string, args ...any) {
	d.entries = append(d.entries, fmt.Sprintf(format, args...))
}

func (*diary) Say(string)              {}
func (d *diary) Begin(experiments int) { d.notef("begin %d", experiments) }
func (d *diary) Try(e Experiment, p Part, try int) {
	d.notef("try %d of %s, %s", try, e.Name, p.Name)
}
func (d *diary) End() { d.notef("end") }
func (d *diary) Done(r Result) {
	d.notef("%s is %s", r.Name, r.Verdict)
	if d.done != nil {
		d.done()
	}
}

// step notes that it is made.
func (d *diary) step(err error) Step {
	return func(context.Context, *Environment) error { d.notef("step"); return err }
}

func (d *diary) watch() Watch {
	return Watch{
		Try: func(a Attempt) (over func()) {
			d.notef("watch item %d in %s", a.Item, filepath.Base(a.Files[0]))
			return func() { d.notef("over") }
		},
		Part: func(_ string, p PartResult) { d.notef("%s is over, and holds: %t", p.Name, p.Finding.Holds) },
	}
}

func TestARunIsFollowedAsItHappens(t *testing.T) {
	d, item, broken := new(diary), int64(40), errors.New("the server is gone")
	plan := Plan{
		Folder: t.TempDir(), Progress: d, Watch: d.watch(), NextItem: func() int64 { item++; return item },
		Experiments: []Experiment{
			{Number: 1, Name: "breaks", Parts: []Part{{Name: "one", Steps: []Step{d.step(broken)}, Check: reaches(0)}}},
			{Number: 2, Name: "holds", Parts: []Part{{Name: "two", Steps: []Step{d.step(nil), measured()}, Check: reaches(2), Tries: 2}}},
		},
	}
	results, err := On(t.Context(), labtest.StartSupervisor(t), &servers.Backends{Database: &servers.Database{}}, plan)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "experiment 1, breaks: one: ") || len(results) != 2 || results[0].Parts[0].NotRun == "" {
		t.Errorf("there are %+v: %v", results, err)
	}
	if want := []string{
		"begin 2",
		"try 1 of breaks, one", "watch item 41 in one-1.jsonl", "step", "over", "one is over, and holds: false", "breaks is not run",
		"try 1 of holds, two", "watch item 42 in two-1.jsonl", "step", "over",
		"try 2 of holds, two", "watch item 43 in two-2.jsonl", "step", "over", "two is over, and holds: true", "holds is reproduced",
	}; !slices.Equal(d.entries, want) {
		t.Errorf("it is followed as %q, want %q", d.entries, want)
	}
}

// A run that is ended has the experiments that were made before, and no other part.
func TestARunThatIsEndedKeepsWhatWasMade(t *testing.T) {
	ends := errors.New("ended by hand")
	for name, c := range map[string]struct {
		last        string // what is noted when it is ended
		results     int
		interrupted bool
	}{
		"in a part":        {"step", 1, true},
		"between two":      {"second is reproduced", 2, true},
		"after the last":   {"third is reproduced", 3, false},
		"it was not ended": {"", 3, false},
	} {
		d := new(diary)
		ctx, cancel := context.WithCancelCause(t.Context())
		d.done = func() {
			if d.entries[len(d.entries)-1] == c.last {
				cancel(ends)
			}
		}
		part := Part{Name: "part", Steps: []Step{measured()}, Check: reaches(0)}
		second := part
		second.Steps = []Step{func(ctx context.Context, _ *Environment) error {
			if d.notef("step"); c.last == "step" {
				cancel(ends)
			}
			return context.Cause(ctx)
		}}
		r, err := Run(ctx, Plan{
			Servers: servers.Choice{Mode: servers.Embedded, Redis: servers.None}, Progress: d, Folder: t.TempDir(),
			Experiments: []Experiment{
				{Number: 1, Name: "first", Parts: []Part{part}},
				{Number: 2, Name: "second", Parts: []Part{second, {Name: "next", Steps: part.Steps, Check: reaches(0)}}},
				{Number: 3, Name: "third", Parts: []Part{part}},
			},
		})
		if len(r.Experiments) != c.results || r.Interrupted != c.interrupted || errors.Is(err, ends) != c.interrupted || err != nil && !c.interrupted {
			t.Errorf("%s: %d experiments, interrupted %t: %v", name, len(r.Experiments), r.Interrupted, err)
		}
		if more := slices.Contains(d.entries, "try 1 of second, next"); more != (c.last != "step") {
			t.Errorf("%s: %q", name, d.entries)
		}
		if ends := slices.Index(d.entries, "end"); ends != len(d.entries)-1 {
			t.Errorf("%s: the end is not the last of %q", name, d.entries)
		}
		cancel(nil)
	}
}

package live

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/should"
)

// guestShop answers as a balancer before replicas that take turns.
type guestShop struct {
	*httptest.Server

	names atomic.Pointer[[]string]
	next  atomic.Int64
}

func openShop(t *testing.T, names ...string) *guestShop {
	t.Helper()
	s := new(guestShop)
	s.names.Store(&names)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		names := *s.names.Load()
		if len(names) == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set(handler.ReplicaHeader, names[int(s.next.Add(1))%len(names)])
	}))
	t.Cleanup(s.Close)
	return s
}

// What replicas of others cannot do is rejected by its name.
func TestReplicasOfOthersAreNotOursToChange(t *testing.T) {
	g := &guest{to: shop.Client{URL: "http://shop"}, replicas: []string{"a", "b"}}
	for _, c := range []struct {
		replicas, work int
		room           float64
		want           string
	}{
		{2, 0, 0, ""},
		{3, 0, 0, "replicas: 2 answer at http://shop"},
		{2, 1, 0, "work_ms: "},
		{2, 0, 1, "room: "},
	} {
		err := g.check(Settings{Replicas: c.replicas, WorkMillis: c.work, Room: c.room})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, errInput) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d replicas and %d ms of work are %v, want …%s…", c.replicas, c.work, err, c.want)
		}
	}
	if err := g.act(t.Context(), "replica-1", Kill); !errors.Is(err, errConflict) || !strings.Contains(err.Error(), "others run it") {
		t.Errorf("a kill is %v", err)
	}
}

// A replica that comes is counted at once, one that goes when it was not reached twice: a balancer that
// chooses at random may miss it once.
func TestReplicasOfOthersComeAndGo(t *testing.T) {
	there := openShop(t, "a", "b")
	g := &guest{to: shop.Client{URL: there.URL}}
	for _, c := range []struct {
		what    string
		answer  []string
		changes map[string]string
		want    []string
	}{
		{"at first", []string{"a", "b"}, map[string]string{"a": "came", "b": "came"}, []string{"a", "b"}},
		{"one more", []string{"c", "a", "b"}, map[string]string{"c": "came"}, []string{"a", "b", "c"}},
		{"one is missed", []string{"a", "c"}, nil, []string{"a", "b", "c"}},
		{"it is there", []string{"a", "b", "c"}, nil, []string{"a", "b", "c"}},
		{"one is missed again", []string{"a", "c"}, nil, []string{"a", "b", "c"}},
		{"and twice", []string{"a", "c"}, map[string]string{"b": "went"}, []string{"a", "c"}},
		{"nothing answers", nil, nil, []string{"a", "c"}},
	} {
		there.names.Store(&c.answer)
		changes, err := g.recount(t.Context())
		should.Be(t, err != nil, len(c.answer) == 0, c.what)
		if !maps.Equal(changes, c.changes) {
			t.Errorf("%s: the changes are %v, want %v", c.what, changes, c.changes)
		}
		list := g.machines()
		names := make([]string, len(list))
		for i, m := range list {
			names[i] = m.Name
		}
		should.Equal(t, names, c.want, "the replicas are", c.what)
	}
}

// A sale is judged by the most replicas that it had, and what fails when one goes is no evidence.
func TestASaleOnReplicasOfOthersFollowsTheirNumber(t *testing.T) {
	there := openShop(t, "a", "b", "c")
	g := &guest{to: shop.Client{URL: there.URL}}
	s := &Session{hub: newHub(), ground: g, ctx: t.Context()}
	s.recount(g)
	should.Be(t, s.sale.Settings.Replicas, 3, "replicas of the settings before a sale")
	s.run, s.sale.Phase = &run{settings: s.sale.Settings}, Selling
	there.names.Store(&[]string{"a"})
	s.recount(g)
	s.recount(g)
	if got := s.sale.Settings.Replicas; got != 1 || s.run.settings.Replicas != 3 || !s.run.faults.Load() {
		t.Errorf("%d replicas are left and the sale is judged by %d, faults %v; want 1, 3, true", got, s.run.settings.Replicas, s.run.faults.Load())
	}
	var marks []Mark
	s.hub.look(func(state *State) { marks = slices.Clone(state.Marks[3:]) })
	if len(marks) != 2 || marks[0].Who != "b" || marks[0].What != "went" || marks[1].Who != "c" || marks[1].What != "went" {
		t.Errorf("the marks are %v", marks)
	}
}

// They may have any number of items, and those of an earlier session are among them.
func TestItemsOnReplicasOfOthersAreNewOnes(t *testing.T) {
	s := &Session{hub: newHub()}
	s.ctx, s.stop = context.WithCancel(t.Context())
	defer func() { s.stop(); s.jobs.Wait() }()
	before := time.Now().UnixMilli()
	err := s.visit(t.Context(), Options{External: shop.Client{URL: openShop(t, "a").URL}, Progress: func(string) {}})
	if err != nil || s.item < before {
		t.Errorf("the first item would be %d (%v)", s.item+1, err)
	}
}

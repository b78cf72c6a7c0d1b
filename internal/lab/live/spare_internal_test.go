package live

import (
	"errors"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// What has failed can be tried again, and what it would have led to cannot be done.
func TestAClockThatCouldNotBeMovedIsNotSetRight(t *testing.T) {
	t.Chdir(t.TempDir()) // a clock without a file fails there
	s := &stage{
		hub: newHub(), machines: []Machine{{Name: "redlock-1", Can: []string{Ahead}}},
		spare: &spare{masters: &servers.Redlock{Nodes: []*servers.Redis{{Clock: new(servers.Clock)}}}},
	}
	if err := s.use(t.Context(), "redlock-1", Right); !errors.Is(err, errConflict) {
		t.Errorf("a clock that was not moved is set right: %v", err)
	}
	for range 2 {
		if err := s.use(t.Context(), "redlock-1", Ahead); err == nil || errors.Is(err, errConflict) || !slices.Equal(s.machines[0].Can, []string{Ahead}) {
			t.Errorf("it ends with %v, and then can be done: %q", err, s.machines[0].Can)
		}
	}
}

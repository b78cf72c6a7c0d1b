package live

import (
	"errors"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/client"
)

// What replicas of others cannot do is rejected by its name.
func TestReplicasOfOthersAreNotOursToChange(t *testing.T) {
	g := &guest{to: client.Client{URL: "http://shop"}, replicas: []string{"a", "b"}}
	for _, c := range []struct {
		replicas, work int
		want           string
	}{
		{2, 0, ""},
		{3, 0, "replicas: 2 answer at http://shop"},
		{2, 1, "work_ms: "},
	} {
		err := g.check(Settings{Replicas: c.replicas, WorkMillis: c.work})
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, errInput) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d replicas and %d ms of work are %v, want …%s…", c.replicas, c.work, err, c.want)
		}
	}
	if err := g.act(t.Context(), "replica-1", Kill); !errors.Is(err, errConflict) || !strings.Contains(err.Error(), "others run it") {
		t.Errorf("a kill is %v", err)
	}
}

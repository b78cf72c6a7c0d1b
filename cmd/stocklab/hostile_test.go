package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/hostile"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
)

// attacked runs the attacker against replicas under the configuration of a shop, and
// fails where a bound does not hold.
func attacked(t *testing.T, plan hostile.Plan) {
	t.Helper()
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	config := must.Get(filepath.Abs("../../configs/production.yaml"))(t)
	plan.Config, plan.Tokens, plan.Connections, plan.Addresses = config, true, 200, 20
	plan.Memory, plan.Progress = 128<<20*cmdtest.RaceShadow(), func(words string) { t.Log(words) }
	r := must.Get(hostile.Run(t.Context(), plan))(t)
	var text bytes.Buffer
	must.Do(t, r.Table(&text))
	t.Log("\n" + text.String())
	for _, c := range r.Failed() {
		t.Errorf("%s: %s, want %s", c.What, c.Hostile, c.Bound)
	}
}

// Every attack there is, many times over. On a machine that does something else as well the
// times mean nothing: here they are only reported.
func TestHonestBuyersAreServedUnderAttack(t *testing.T) {
	attacked(t, hostile.Plan{
		Servers: servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None},
		Seed:    15, Baseline: 2 * time.Second, Duration: 8 * time.Second, Rate: 400, HonestRate: 30,
	})
}

func TestABoundThatDoesNotHoldFailsTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostile.json")
	for _, c := range []struct {
		check hostile.Check
		want  error
	}{
		{hostile.Check{What: "memory", Bound: "256 MiB", Held: true}, nil},
		{hostile.Check{What: "memory", Bound: "256 MiB", Reported: true}, nil},
		{hostile.Check{What: "memory", Bound: "256 MiB"}, errNotHeld},
	} {
		var out bytes.Buffer
		err := showJudged(&out, &hostile.Report{Checks: []hostile.Check{c.check}}, file)
		if !errors.Is(err, c.want) || !strings.Contains(out.String(), "256 MiB") {
			t.Errorf("%+v: %v, want %v\n%s", c.check, err, c.want, out.String())
		}
		if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), "256 MiB") {
			t.Errorf("%+v: the report is %s (%v)", c.check, content, err)
		}
	}
}

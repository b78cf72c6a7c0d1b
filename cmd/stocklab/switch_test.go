package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/client"
)

// What the owner switches through one replica holds on all of them: on that one at
// once, on the others soon.
func aStrategyIsSwitchedOffOnAll(t *testing.T, l testLab) {
	t.Helper()
	goods := l.create(t, 100)
	owner := l.cluster.ClientOf(0)
	buy := func(replica int) cmdtest.Answer {
		return cmdtest.Do(cmdtest.Ask(t, http.MethodPost, fmt.Sprintf("%s/deduct?strategy=naive&goods_id=%d", l.cluster.ClientOf(replica).URL, goods)))
	}
	for _, c := range []struct {
		query string
		is    func(cmdtest.Answer) bool
	}{
		{"enabled=false&reason=it+oversells", func(got cmdtest.Answer) bool {
			return got.Kind == "strategy-refused" && strings.Contains(got.Text, "it is switched off: it oversells")
		}},
		{"enabled=true", func(got cmdtest.Answer) bool { return got.Status == http.StatusOK }},
	} {
		if got := cmdtest.Do(putSwitch(t, owner, "naive", c.query)); got.Status != http.StatusOK {
			t.Fatalf("%s is answered with %d %s", c.query, got.Status, got.Text)
		}
		if got := buy(0); !c.is(got) {
			t.Errorf("after %s the replica that was asked answers %d %s", c.query, got.Status, got.Text)
		}
		for replica := range l.cluster.Replicas {
			cmdtest.Await(t, fmt.Sprintf("replica %d after %s", replica+1, c.query), 5*time.Second, func() bool { return c.is(buy(replica)) })
		}
	}
}

func putSwitch(t *testing.T, owner client.Client, name, query string) *http.Request {
	t.Helper()
	r := cmdtest.Ask(t, http.MethodPut, owner.AdminURL+"/strategies/"+name+"?"+query)
	r.Header.Set("Authorization", "Bearer "+owner.Token)
	return r
}

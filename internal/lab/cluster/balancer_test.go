package cluster

import (
	"testing"

	"github.com/stockd/stockd/internal/config"
)

func TestTheProxyClosesASpareConnectionBeforeAReplicaDoes(t *testing.T) {
	c, err := config.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if idleWithin >= c.HTTP.HeaderTimeout {
		t.Errorf("the proxy keeps a connection that it does not use for %s, and a replica for %s", idleWithin, c.HTTP.HeaderTimeout)
	}
}

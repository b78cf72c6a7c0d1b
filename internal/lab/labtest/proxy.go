package labtest

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// NewProxy puts a proxy before a target; it is closed with the test.
func NewProxy(t *testing.T, target string) *servers.Proxy {
	t.Helper()
	p, err := servers.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Lose has the next request that contains certain bytes fail. With delivered the
// server gets it and acts, and only its answer is lost.
func Lose(p *servers.Proxy, sent string, delivered bool) *servers.Trigger {
	return LoseNth(p, 1, sent, delivered)
}

// LoseNth is Lose, but for the n-th of these requests.
func LoseNth(p *servers.Proxy, n int, sent string, delivered bool) *servers.Trigger {
	do := servers.Lose
	if delivered {
		do = servers.LoseReply
	}
	return p.Arm(servers.Rule{Sent: sent, Nth: n, Do: do})
}

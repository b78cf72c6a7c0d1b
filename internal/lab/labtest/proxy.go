package labtest

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/fault"
)

// NewProxy puts a proxy before a target; it is closed with the test.
func NewProxy(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Lose has the next request that has certain bytes in it fail. delivered tells
// whether the server still gets it: then it acts, and only its answer is lost.
func Lose(p *fault.Proxy, sent string, delivered bool) *fault.Point {
	return LoseNth(p, 1, sent, delivered)
}

// LoseNth is Lose, but for the n-th of these requests.
func LoseNth(p *fault.Proxy, n int, sent string, delivered bool) *fault.Point {
	do := fault.Lose
	if delivered {
		do = fault.LoseReply
	}
	return p.Arm(fault.Rule{Sent: sent, Nth: n, Do: do})
}

package checker

import (
	"cmp"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
)

// RepeatedTokens expects that two holders of one name got the same token.
func RepeatedTokens() Check {
	return func(h *history.History) Finding {
		repeated := 0
		says := Say("no-same-token")
		for _, holdings := range holdingsOf(h) {
			first := make(map[uint64]history.Lease)
			for _, b := range holdings {
				a, granted := first[b.Token]
				switch {
				case b.Token == 0:
				case !granted:
					first[b.Token] = b.Lease
				case a.Holder != b.Holder:
					repeated++
					says = Say("same-token", a.Holder, b.Holder, b.Token, b.Name)
				}
			}
		}
		return Found(repeated > 0, map[string]float64{"repeated_tokens": float64(repeated)}, says)
	}
}

// The problems of a request whose write was rejected because its lease had ended.
const (
	fenced    = "fenced"
	leaseLost = "lease-lost"
)

// StaleWritesRejected expects that a write of a holder whose lease had ended was
// rejected, as fenced off or because the lease was known to be lost, and that none
// was accepted. Without a sale that carries a token this cannot be decided, and does
// not hold.
func StaleWritesRejected() Check {
	return func(h *history.History) Finding {
		s := stalenessOf(h)
		says := Say("none-stale", s.tokens)
		switch {
		case s.tokens == 0:
			says = Say("no-token")
		case s.accepted > 0:
			says = Say("stale-accepted", s.accepted, s.old.Token, s.old.Remaining, s.newer.Token, s.newer.Remaining+s.newer.Quantity)
		}
		return Found(s.tokens > 0 && s.accepted == 0 && s.fenced+s.lost > 0, map[string]float64{
			"sales_with_token": float64(s.tokens), "stale_writes": float64(s.accepted),
			"fenced_requests": float64(s.fenced), "lease_lost_requests": float64(s.lost),
		}, says, Say("fenced-off", s.fenced, s.lost))
	}
}

type staleness struct {
	tokens, accepted, fenced, lost int
	old, newer                     history.Request // an example of accepted
}

func stalenessOf(h *history.History) (s staleness) {
	for _, requests := range byItem(h.Requests) {
		var sales []history.Request
		for _, r := range requests {
			switch {
			case r.Outcome == history.Sold && r.Token > 0:
				sales = append(sales, r)
			case r.Outcome == history.Failed && r.Problem == fenced:
				s.fenced++
			case r.Outcome == history.Failed && r.Problem == leaseLost:
				s.lost++
			}
		}
		s.tokens += len(sales)
		s.compare(sales)
	}
	return s
}

// compare counts the sales that came too late. A sale says what it left, and so
// what it had read: as much more as it sold. Where a later token read more than an
// earlier one left, it had not seen the earlier one's write, which therefore came
// after a later holder was there. Nothing else that is recorded tells when a write
// was made: the times of requests and leases only enclose it.
func (s *staleness) compare(sales []history.Request) {
	slices.SortStableFunc(sales, func(a, b history.Request) int { return cmp.Compare(b.Token, a.Token) })
	var highest int64 // that was read by any later token
	for from := 0; from < len(sales); {
		to := from
		for to < len(sales) && sales[to].Token == sales[from].Token {
			to++
		}
		for _, old := range sales[from:to] {
			if highest <= old.Remaining {
				continue
			}
			if i := slices.IndexFunc(sales[:from], func(newer history.Request) bool { return outran(newer, old) }); i >= 0 {
				s.accepted++
				s.old, s.newer = old, sales[i]
			}
		}
		for _, r := range sales[from:to] {
			highest = max(highest, r.Remaining+r.Quantity)
		}
		from = to
	}
}

// outran tells that a sale of a later token had not seen what an earlier token
// wrote. Where it was over before the earlier one was asked for, the tokens began
// anew, and their order says nothing.
func outran(newer, old history.Request) bool {
	return newer.Remaining+newer.Quantity > old.Remaining && !newer.End.Before(old.Start)
}

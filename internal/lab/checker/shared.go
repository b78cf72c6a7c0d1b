package checker

import (
	"fmt"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// ReadersShare expects that two holders of shared leases had a name at the same time.
func ReadersShare() Check {
	return func(h *history.History) Finding {
		shared, leases := 0, 0
		for _, holdings := range holdingsOf(h) {
			for _, one := range holdings {
				if one.Shared {
					leases++
				}
			}
			for _, o := range together(holdings) {
				if o.A.Shared && o.B.Shared && o.A.Holder != o.B.Holder {
					shared++
				}
			}
		}
		return Finding{
			Holds:   shared > 0,
			Says:    fmt.Sprintf("%d times one of %s was held while another was", shared, count(leases, "shared lease")),
			Numbers: map[string]float64{"shared_leases": float64(leases), "shared_overlaps": float64(shared)},
		}
	}
}

// HalfMadePages expects a page on which what is left and what is sold are not the units that
// there were.
func HalfMadePages(units int64) Check {
	return pages(units, func(_, halfMade int) bool { return halfMade > 0 })
}

// WholePages expects pages, and no such page among them.
func WholePages(units int64) Check {
	return pages(units, func(all, halfMade int) bool { return all > 0 && halfMade == 0 })
}

func pages(units int64, judge func(all, halfMade int) bool) Check {
	return func(h *history.History) Finding {
		halfMade := 0
		for _, page := range h.Samples {
			if page.Stock+page.Sold != units {
				halfMade++
			}
		}
		return Finding{
			Holds:   judge(len(h.Samples), halfMade),
			Says:    fmt.Sprintf("%d of %s showed a purchase that was half made", halfMade, count(len(h.Samples), "page")),
			Numbers: map[string]float64{"pages": float64(len(h.Samples)), "half_made_pages": float64(halfMade)},
		}
	}
}

// LossNoticed expects that a holder knew of the loss of its lease within a time from a mark
// that begins with these words. To learn of it by the release is too late.
func LossNoticed(holder, mark string, within time.Duration) Check {
	return func(h *history.History) Finding {
		for _, m := range h.Marks {
			if !strings.HasPrefix(m.What, mark) {
				continue
			}
			for _, l := range h.Leases {
				if l.Holder != holder || l.Granted.IsZero() || l.Lost.Before(m.At) || !l.End().Equal(l.Lost) {
					continue
				}
				took := l.Lost.Sub(m.At)
				return Finding{
					Holds:   took <= within,
					Says:    fmt.Sprintf("%s knew of the loss after %s; at most %s was expected", holder, span(took), span(within)),
					Numbers: map[string]float64{"loss_noticed_ms": ms(took)},
				}
			}
		}
		return inconclusive(holder + " was not notified of a loss")
	}
}

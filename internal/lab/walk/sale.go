package walk

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

func (s Step) turnsSale() bool { return s.Do == Close || s.Do == Delay || s.Do == Reopen }

// offSale is when an item was certainly not on sale: from the answer to a close or a delay until the start that was set, or
// until the next turn of the sale was asked for. After a turn whose outcome is unknown nothing is certain: it may happen
// later.
func (w *Run) offSale() (times []itemOp) {
	for _, r := range w.Records {
		if !r.turnsSale() || r.Do == Reopen || r.Outcome != history.Sold {
			continue
		}
		off, certain := itemOp{start: r.End, end: r.Starts, what: fmt.Sprintf("%+v", r.Step)}, true
		for _, other := range w.Records {
			switch {
			case !other.turnsSale() || other.Do == Close:
			case other.Start.Before(r.End):
				certain = certain && other.Outcome != history.Unknown
			case off.end.IsZero() || other.Start.Before(off.end):
				off.end = other.Start
			}
		}
		if certain {
			times = append(times, off)
		}
	}
	return times
}

// saleFaults expects that nothing is sold or held while the item is not on sale. The clock of the database may be a step off.
func (w *Run) saleFaults(happened []itemOp) (faults []string) {
	for _, off := range w.offSale() {
		for _, o := range happened {
			if o.do == Buy && o.start.After(off.start) && !o.end.IsZero() && o.end.Add(clockStep).Before(off.end) {
				faults = append(faults, fmt.Sprintf("%s was accepted from %s to %s, between %s at %s and %s", o.what,
					o.start.Format(time.StampMicro), o.end.Format(time.StampMicro), off.what, off.start.Format(time.StampMicro), off.end.Format(time.StampMicro)))
			}
		}
	}
	return faults
}

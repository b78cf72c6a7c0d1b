package strategy

import (
	"time"

	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/stock"
)

// Observer receives the events of one strategy. It is called in the course of purchases,
// from any goroutine, and must be quick.
type Observer interface {
	// Deducted is the end of a purchase, with how long it took, all waiting included.
	Deducted(outcome stock.Outcome, err error, took time.Duration)
	// Waited is the end of the wait for a lock, or for the owner of an item, also in vain.
	Waited(took time.Duration)
	// Held is the end of a lease, and whether it was lost.
	Held(took time.Duration, lost bool)
	// TriedInVain is one failed try of a lock that polls.
	TriedInVain()
	// RaceLost is one overtaken try of an optimistic writer.
	RaceLost()
	// Fenced is a write that was rejected because its token came too late.
	Fenced()
	// Batched is a batch of grouped purchases that is about to be written.
	Batched(purchases int)

	hot.Observer
}

// Observer receives the events of the strategy that is made of these parts.
func (d Deps) Observer() Observer {
	if d.Observe == nil {
		return unobserved{}
	}
	return d.Observe(d.Store.Strategy())
}

// unobserved drops all events.
type unobserved struct{}

func (unobserved) Deducted(stock.Outcome, error, time.Duration) {}
func (unobserved) Waited(time.Duration)                         {}
func (unobserved) Held(time.Duration, bool)                     {}
func (unobserved) TriedInVain()                                 {}
func (unobserved) RaceLost()                                    {}
func (unobserved) Fenced()                                      {}
func (unobserved) Batched(int)                                  {}
func (unobserved) Written(int)                                  {}
func (unobserved) DeadLettered()                                {}
func (unobserved) Compared(int64)                               {}
func (unobserved) Repaired()                                    {}

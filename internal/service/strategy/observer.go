package strategy

import (
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// Observer hears what one strategy does. It is called in the course of purchases,
// from any goroutine, and must be quick.
type Observer interface {
	// Deducted is told the end of a purchase, and how long it took with all its
	// waiting.
	Deducted(outcome stock.Outcome, err error, took time.Duration)
	// Waited is told how long a lock, or the owner of a goods, was waited for, also in
	// vain.
	Waited(took time.Duration)
	// Held is told how long a lock was held, and whether it was lost meanwhile.
	Held(took time.Duration, lost bool)
	// TriedInVain is called after a try to take a lock that is somebody else's, by
	// those locks that try again.
	TriedInVain()
	// RaceLost is called by an optimistic writer whom another one overtook.
	RaceLost()
	// Fenced is called when a write was refused because its token came too late.
	Fenced()
	// Batched is told of a batch of grouped purchases that is about to be written.
	Batched(purchases int)
}

// Observer is who hears what the strategy does that is made of these parts.
func (d Deps) Observer() Observer {
	if d.Observe == nil {
		return unobserved{}
	}
	return d.Observe(d.Store.Strategy())
}

// unobserved hears nothing, and costs nothing.
type unobserved struct{}

func (unobserved) Deducted(stock.Outcome, error, time.Duration) {}
func (unobserved) Waited(time.Duration)                         {}
func (unobserved) Held(time.Duration, bool)                     {}
func (unobserved) TriedInVain()                                 {}
func (unobserved) RaceLost()                                    {}
func (unobserved) Fenced()                                      {}
func (unobserved) Batched(int)                                  {}

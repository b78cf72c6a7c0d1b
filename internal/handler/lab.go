package handler

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
)

// Lab makes the faults of an experiment inside of this replica.
type Lab interface {
	// SetFault adds a fault; it is done when a purchase is where it is meant for.
	SetFault(f Fault)
	// Faults lists what was set, in that order, what is used up included.
	Faults() []Fault
	// ClearFaults forgets all of them. Purchases that are held go on.
	ClearFaults()
}

// Fault is something that happens to a purchase between the read and the write of
// a strategy.
type Fault struct {
	// Do is Hold, Pause or Crash.
	Do string `json:"do"`
	// GoodsID and Strategy say to whose purchases; 0 and empty: to anybody's.
	GoodsID  int64  `json:"goods_id"`
	Strategy string `json:"strategy"`
	// For is how long a purchase is held; in JSON a text such as "2s".
	For time.Duration `json:"-"`
	// Deaf has a purchase that was held or paused go on to its write although the
	// lease of its lock, or its request, has ended meanwhile.
	Deaf bool `json:"deaf"`
	// Times is how many purchases it happens to; 0 is 1.
	Times int64 `json:"times"`
	// Reached is how many it has happened to so far. It counts before it happens.
	Reached int64 `json:"reached"`
}

// What a fault does.
const (
	Hold  = "hold"  // the purchase waits
	Pause = "pause" // the process stops, until somebody continues it
	Crash = "crash" // the process is killed
)

// faultText is a fault with its duration as JSON has it.
type faultText struct {
	plainFault

	For string `json:"for,omitempty"`
}

type plainFault Fault

// MarshalJSON writes the duration as text.
func (f Fault) MarshalJSON() ([]byte, error) {
	t := faultText{plainFault: plainFault(f)}
	if f.For != 0 {
		t.For = f.For.String()
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads the duration from text.
func (f *Fault) UnmarshalJSON(content []byte) (err error) {
	var t faultText
	if err := json.Unmarshal(content, &t); err != nil {
		return err
	}
	*f = Fault(t.plainFault)
	if t.For != "" {
		f.For, err = time.ParseDuration(t.For)
	}
	return err
}

// The bounds of a fault.
const (
	longestHold = 10 * time.Minute
	mostTimes   = 1_000_000
)

// faults serves the owner's /lab/faults.
type faults struct{ options Options }

// set serves POST /lab/faults.
func (h faults) set(c *gin.Context) (any, error) {
	f, err := readAdminForm(c, "do", "goods_id", "strategy", "for", "deaf", "times")
	if err != nil {
		return nil, err
	}
	fault := Fault{
		Do:       f.oneOf("do", "one of hold, pause, crash", Hold, Pause, Crash),
		GoodsID:  f.wholeOr("goods_id", 0, 0, math.MaxInt64),
		Strategy: h.strategy(f),
		Deaf:     f.flag("deaf"),
		Times:    f.wholeOr("times", 1, 1, mostTimes),
	}
	f.require("do", "one of hold, pause, crash")
	if fault.Do == Hold {
		fault.For = f.duration("for", time.Millisecond, longestHold)
	} else {
		f.without("for", "do is "+fault.Do)
	}
	if fault.Do == Crash {
		f.without("deaf", "do is "+fault.Do)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	h.options.Lab.SetFault(fault)
	return fault, nil
}

// strategy reads a name of the catalogue, or nothing.
func (h faults) strategy(f *form) string {
	v, given := f.values["strategy"]
	if !given || v.text == "" && v.kind != jsonNull {
		return ""
	}
	if !slices.Contains(h.options.Catalogue.Names(), v.text) {
		f.failf("strategy", "must be empty or the name of a strategy, not %s", quote(v))
	}
	return v.text
}

// list serves GET /lab/faults.
func (h faults) list(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"faults": h.options.Lab.Faults()})
}

// clear serves DELETE /lab/faults.
func (h faults) clear(c *gin.Context) {
	h.options.Lab.ClearFaults()
	c.Status(http.StatusNoContent)
}

// duration reads a text such as 2s.
func (f *form) duration(name string, least, most time.Duration) time.Duration {
	allowed := fmt.Sprintf("a duration from %s to %s", least, most)
	f.require(name, allowed)
	return read(f, name, allowed+" such as 2s or 250ms", jsonText, func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= least && d <= most
	})
}

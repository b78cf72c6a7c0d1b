package failpoint

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/stockd/stockd/internal/handler"
)

// Fault interrupts purchases between the read and the write of a strategy.
type Fault struct {
	// Do is Hold, Pause or Crash.
	Do string `json:"do"`
	// GoodsID and Strategy select the purchases; 0 and empty select all.
	GoodsID  int64  `json:"goods_id"`
	Strategy string `json:"strategy"`
	// For is how long a purchase is held; in JSON a text such as "2s".
	For time.Duration `json:"-"`
	// IgnoreCancel has a held or paused purchase ignore cancellation: it goes on to its write
	// although its lease or its request has ended meanwhile.
	IgnoreCancel bool `json:"deaf"`
	// Times is how many purchases it interrupts; 0 is 1.
	Times int64 `json:"times"`
	// Reached is how many have reached it so far; it counts before it interrupts.
	Reached int64 `json:"reached"`
}

// What a fault does.
const (
	Hold  = "hold"  // the purchase waits
	Pause = "pause" // the process is stopped, until it is sent SIGCONT
	Crash = "crash" // the process is killed
)

// MarshalJSON writes the duration as text.
func (f Fault) MarshalJSON() ([]byte, error) {
	type plain Fault
	text := ""
	if f.For != 0 {
		text = f.For.String()
	}
	return json.Marshal(struct {
		plain

		For string `json:"for,omitempty"`
	}{plain(f), text})
}

// UnmarshalJSON reads the duration from text.
func (f *Fault) UnmarshalJSON(content []byte) error {
	type plain Fault
	text := struct {
		*plain

		For string `json:"for"`
	}{plain: (*plain)(f)}
	err := json.Unmarshal(content, &text)
	if err == nil && text.For != "" {
		f.For, err = time.ParseDuration(text.For)
	}
	return err
}

// The bounds of a fault.
const (
	longestHold = 10 * time.Minute
	maxTimes    = 1_000_000
)

// Routes are those of /lab/faults, for the admin API.
func (l *Registry) Routes() []handler.Route {
	const path = "/lab/faults"
	return []handler.Route{
		{
			Method: http.MethodPost, Path: path, Status: http.StatusCreated,
			Fields: []string{"do", "goods_id", "strategy", "for", "deaf", "times"}, Serve: l.serveSet,
		},
		{Method: http.MethodGet, Path: path, Status: http.StatusOK, Serve: func(handler.Form) func() any {
			return func() any { return map[string]any{"faults": l.Faults()} }
		}},
		{Method: http.MethodDelete, Path: path, Status: http.StatusNoContent, Serve: func(handler.Form) func() any {
			return func() any { l.ClearFaults(); return nil }
		}},
	}
}

func (l *Registry) serveSet(f handler.Form) func() any {
	does := []string{Hold, Pause, Crash}
	if !canStop {
		does = []string{Hold, Crash}
	}
	fault := Fault{
		Do:           f.OneOf("do", does...),
		GoodsID:      f.Whole("goods_id", 0, 0, math.MaxInt64),
		Strategy:     f.Strategy("strategy"),
		IgnoreCancel: f.Flag("deaf"),
		Times:        f.Whole("times", 1, 1, maxTimes),
	}
	if fault.Do == Hold {
		fault.For = f.Duration("for", time.Millisecond, longestHold)
	} else {
		f.Without("for", "do is "+fault.Do)
	}
	if fault.Do == Crash {
		f.Without("deaf", "do is "+fault.Do)
	}
	return func() any {
		l.SetFault(fault)
		return fault
	}
}

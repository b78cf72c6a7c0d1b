package hostile

import (
	"fmt"
	"sync"
)

// Figures count what the requests of one attack came to.
type Figures struct {
	Attack string `json:"attack"`
	Row    string `json:"row"`
	// Made is every request; it is the sum of Ends.
	Made int `json:"made"`
	// Ends counts how requests ended, Statuses the answers by their class, such as 4xx,
	// with 429 apart, and Problems those that were problems.
	Ends     map[end]int    `json:"ends"`
	Statuses map[string]int `json:"statuses"`
	Problems map[string]int `json:"problems,omitempty"`
	// Orders and Units are what the attacker bought, LargestOrder the most in one.
	Orders       int   `json:"orders"`
	Units        int64 `json:"units"`
	LargestOrder int64 `json:"largest_order"`
	// LargestAnswer is in bytes.
	LargestAnswer int `json:"largest_answer"`
}

// Reached counts the requests that a server has seen.
func (f *Figures) Reached() int { return f.Made - f.Ends[unreached] }

func (f *Figures) add(o outcome) {
	f.Made++
	f.Ends[o.end]++
	if o.status != 0 {
		class := fmt.Sprintf("%dxx", o.status/100)
		if o.status == 429 {
			class = "429"
		}
		f.Statuses[class]++
	}
	if o.problem != "" {
		f.Problems[o.problem]++
	}
	if o.order != "" {
		f.Orders++
		f.Units += o.units
		f.LargestOrder = max(f.LargestOrder, o.units)
	}
	f.LargestAnswer = max(f.LargestAnswer, o.size)
}

// tally takes the outcomes of all attacks, from many goroutines.
type tally struct {
	mu      sync.Mutex
	figures []Figures
	orders  map[string]int64 // units, by the order that the attacker was given
}

func newTally(attacks []Attack) *tally {
	t := &tally{figures: make([]Figures, len(attacks)), orders: make(map[string]int64)}
	for i, attack := range attacks {
		t.figures[i] = Figures{
			Attack: attack.Name, Row: attack.Row,
			Ends: make(map[end]int), Statuses: make(map[string]int), Problems: make(map[string]int),
		}
	}
	return t
}

func (t *tally) add(attack int, list []outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range list {
		t.figures[attack].add(o)
		if o.order != "" {
			t.orders[o.order] = o.units
		}
	}
}

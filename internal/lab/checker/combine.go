package checker

import (
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
)

// All expects what each of the checks expects. Its sentence is all of theirs. A
// number that two of them found differently is kept twice, the later ones with a
// count behind their name: longest_wait_ms, longest_wait_ms_2.
func All(checks ...Check) Check {
	return func(h *history.History) Finding {
		if len(checks) == 0 {
			return inconclusive("nothing was expected")
		}
		all := Finding{Holds: true, Numbers: make(map[string]float64)}
		says := make([]string, len(checks))
		for i, c := range checks {
			f := c(h)
			all.Holds = all.Holds && f.Holds
			says[i] = f.Says
			for name, value := range f.Numbers {
				all.keep(name, value)
			}
		}
		all.Says = strings.Join(says, "; ")
		return all
	}
}

// keep adds a number under its name, or under the next that is free.
func (f *Finding) keep(name string, value float64) {
	free := name
	for i := 2; ; i++ {
		if had, taken := f.Numbers[free]; !taken || had == value {
			f.Numbers[free] = value
			return
		}
		free = name + "_" + strconv.Itoa(i)
	}
}

// Named tells a finding apart from others of its kind: name stands before its
// sentence, and in snake_case before its numbers.
func Named(name string, c Check) Check {
	return func(h *history.History) Finding {
		f := c(h)
		named := Finding{Holds: f.Holds, Says: name + ": " + f.Says, Numbers: make(map[string]float64, len(f.Numbers))}
		for number, value := range f.Numbers {
			named.Numbers[snake(name)+"_"+number] = value
		}
		return named
	}
}

// snake makes a number's name of words.
func snake(words string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToLower(words))
}

package trial

import (
	"cmp"
	"maps"
	"slices"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

// apart expects that no two had the name at once, also where only one ever had it.
func apart(h *history.History) checker.Finding {
	f := checker.ExclusiveHolders()(h)
	f.Holds = len(h.Leases) > 0 && len(checker.Overlaps(h)) == 0
	return f
}

// of is the last lease that a holder was granted.
func of(h *history.History, holder string) (granted history.Lease) {
	for _, l := range h.Leases {
		if l.Holder == holder && l.Granted.After(granted.Granted) {
			granted = l
		}
	}
	return granted
}

// fenced expects that the first stayed alone, or that the second one's token is higher.
func fenced(h *history.History) checker.Finding {
	first, second := of(h, "first"), of(h, "second")
	f := apart(h)
	if f.Holds {
		return f
	}
	wrote := checker.Say("no-late-write")
	if slices.ContainsFunc(h.Marks, func(m history.Mark) bool { return m.What == lateWrite }) {
		wrote = checker.Say("late-write")
	}
	if first.Token == 0 || second.Token == 0 {
		return checker.Found(false, f.Numbers, append(f.Facts, wrote, checker.Say("without-token"))...)
	}
	return checker.Found(second.Token > first.Token, f.Numbers, append(f.Facts, wrote, checker.Say("tokens", first.Token, second.Token))...)
}

// lateWrite marks that a holder goes on after its pause.
const lateWrite = "writes after its pause"

// knownInTime expects of each name that the first knew of its loss before the second was granted it.
func knownInTime(h *history.History) (f checker.Finding) {
	names := make(map[string][]history.Lease)
	for _, l := range h.Leases {
		names[l.Name] = append(names[l.Name], l)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if f = knownOfOne(&history.History{Leases: names[name]}); !f.Holds {
			break
		}
	}
	return f
}

func knownOfOne(h *history.History) checker.Finding {
	first, second := of(h, "first"), of(h, "second")
	switch {
	case first.Granted.IsZero():
		return checker.Found(false, nil, checker.Say("no-grant"))
	case second.Granted.IsZero():
		return checker.Found(true, nil, checker.Say("kept-from", "second"))
	case first.Lost.IsZero():
		return checker.Found(false, nil, checker.Say("no-loss-noticed", "first"))
	}
	late := first.Lost.Sub(second.Granted)
	numbers := map[string]float64{"known_after_grant_ms": float64(late.Milliseconds())}
	if late <= 0 {
		return checker.Found(true, numbers, checker.Say("known-before", "first", -late, "second"))
	}
	return checker.Found(false, numbers, checker.Say("known-after", "first", late, "second"))
}

// kept expects what apart does, and says where the first had to give the name up.
func kept(h *history.History) checker.Finding {
	f := apart(h)
	if first := of(h, "first"); !first.Lost.IsZero() {
		return checker.Found(f.Holds, f.Numbers, append(f.Facts, checker.Say("gave-it-up", "first", first.Lost.Sub(first.Granted)))...)
	}
	return f
}

// served expects what apart does, and that the second was granted the name.
func served(h *history.History) checker.Finding {
	f := apart(h)
	for _, l := range h.Leases {
		if l.Holder == "second" && l.Granted.IsZero() {
			return checker.Found(false, f.Numbers, checker.Say("not-granted", "second", l.Error))
		}
	}
	return f
}

// tokensGrow expects a token with each grant that is higher than the one before.
func tokensGrow(h *history.History) checker.Finding {
	granted := slices.DeleteFunc(slices.Clone(h.Leases), func(l history.Lease) bool { return l.Granted.IsZero() })
	slices.SortFunc(granted, func(a, b history.Lease) int { return cmp.Compare(a.Granted.UnixNano(), b.Granted.UnixNano()) })
	numbers := map[string]float64{"granted_leases": float64(len(granted))}
	for i, l := range granted {
		if l.Token == 0 {
			return checker.Found(false, numbers, checker.Say("without-token"))
		}
		if i > 0 && l.Token <= granted[i-1].Token {
			return checker.Found(false, numbers, checker.Say("tokens", granted[i-1].Token, l.Token))
		}
	}
	if len(granted) < 2 {
		return checker.Found(false, numbers, checker.Say("no-grant"))
	}
	return checker.Found(true, numbers, checker.Say("tokens", granted[0].Token, granted[len(granted)-1].Token))
}

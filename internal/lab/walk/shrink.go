package walk

import "slices"

// Shrink removes from a plan the steps that it fails without, many at a time at first.
// The answer of fails may vary from one call to the next; where it always says no, for
// example because time is up, the plan stays as it is.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	type place struct{ actor, step int }
	var kept []place
	for i, steps := range p.Actors {
		for j := range steps {
			kept = append(kept, place{i, j})
		}
	}
	only := func(kept []place) Plan {
		actors := make([][]Step, len(p.Actors))
		for _, at := range kept {
			actors[at.actor] = append(actors[at.actor], p.Actors[at.actor][at.step])
		}
		shorter := p
		shorter.Actors = slices.DeleteFunc(actors, func(steps []Step) bool { return len(steps) == 0 })
		return shorter
	}
	for size := (len(kept) + 1) / 2; size > 0; {
		before := len(kept)
		for from := 0; from < len(kept); {
			rest := slices.Concat(kept[:from], kept[min(from+size, len(kept)):])
			if fails(only(rest)) {
				kept = rest
			} else {
				from += size
			}
		}
		if size > 1 || len(kept) == before {
			size /= 2
		}
	}
	return only(kept)
}

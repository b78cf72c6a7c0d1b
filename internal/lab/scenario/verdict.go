package scenario

import "strings"

// judge concludes the verdict from the parts: reproduced where each of them held,
// not run where one of them was not made, and not reproduced otherwise. One that
// did not hold weighs more than one that was not made.
func (r *Result) judge() {
	var contradicted, missing, held []string
	r.Tries, r.Evidence = 0, make(map[string]float64)
	for _, p := range r.Parts {
		r.Tries += p.Tries
		for name, value := range p.Finding.Numbers {
			r.Evidence[p.Name+"."+name] = value
		}
		switch {
		case p.NotRun != "":
			missing = append(missing, p.Name+": "+p.NotRun)
		case !p.Finding.Holds:
			contradicted = append(contradicted, p.Name+": "+p.Finding.Says)
		default:
			held = append(held, p.Name+": "+p.Finding.Says)
		}
	}
	switch {
	case len(contradicted) > 0:
		r.Verdict, r.Reason = NotReproduced, strings.Join(contradicted, "; ")
	case len(missing) > 0 || len(held) == 0:
		r.Verdict, r.Reason = NotRun, strings.Join(missing, "; ")
	default:
		r.Verdict, r.Reason = Reproduced, strings.Join(held, "; ")
	}
}

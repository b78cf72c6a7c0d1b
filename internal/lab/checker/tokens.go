package checker

import (
	"fmt"

	"github.com/stockd/stockd/internal/lab/history"
)

// TokensGrow expects that each lease of a name had a higher token than all that
// were granted before it, by the same lock. It needs two tokens of one name to
// hold.
func TokensGrow() Check {
	return func(h *history.History) Finding {
		compared, fell := 0, 0
		var example string
		for _, holdings := range holdingsOf(h) {
			var highest history.Lease
			for _, b := range holdings {
				reentered := b.Holder == highest.Holder && b.Token == highest.Token
				if b.Token == 0 || reentered {
					continue
				}
				if highest.Token > 0 {
					compared++
					if b.Token <= highest.Token {
						fell++
						example = fmt.Sprintf("%s was granted %d after %d", b.Name, b.Token, highest.Token)
						continue
					}
				}
				highest = b.Lease
			}
		}
		f := Finding{Holds: compared > 0 && fell == 0, Numbers: map[string]float64{
			"tokens_compared": float64(compared), "tokens_not_grown": float64(fell),
		}}
		switch {
		case compared == 0:
			f.Says = "no two tokens of one name were granted"
		case fell > 0:
			f.Says = fmt.Sprintf("%d of %s did not grow: %s", fell, count(compared, "token"), example)
		default:
			f.Says = fmt.Sprintf("each of %s is higher than the one before it", count(compared, "token"))
		}
		return f
	}
}

// RepeatedTokens expects that two holders of one name got the same token.
func RepeatedTokens() Check {
	return func(h *history.History) Finding {
		repeated := 0
		says := "no token was granted to two holders"
		for _, holdings := range holdingsOf(h) {
			first := make(map[uint64]history.Lease)
			for _, b := range holdings {
				a, granted := first[b.Token]
				switch {
				case b.Token == 0:
				case !granted:
					first[b.Token] = b.Lease
				case a.Holder != b.Holder:
					repeated++
					says = fmt.Sprintf("%s and %s both got token %d of %s", a.Holder, b.Holder, b.Token, b.Name)
				}
			}
		}
		return Finding{Holds: repeated > 0, Numbers: map[string]float64{"repeated_tokens": float64(repeated)}, Says: says}
	}
}

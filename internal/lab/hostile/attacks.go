package hostile

import (
	"context"
	"slices"
)

// Attack is one way to do harm: it makes one request, or uses one connection.
type Attack struct {
	// Name is what the report calls it, Row its row in docs/security.md.
	Name, Row string
	// Weight is how often it is picked beside the others; 0 is 1.
	Weight int
	// Largest bounds the bytes of one answer; 0 sets no bound.
	Largest int
	// Denied tells that no answer may be a success.
	Denied bool

	do func(context.Context, *attacker) []outcome
}

// Attacks lists all that the attacker does. One more is one entry more.
func Attacks() []Attack {
	return slices.Concat(identities(), stolenKeys(), floods(), forgeries(), adminAttacks(), connections(), malformed())
}

// schedule is what one connection does: every attack once, from another one on than the
// other connections, and then any.
type schedule struct {
	attacks []Attack
	number  int
	made    int
	total   int
}

func newSchedule(attacks []Attack, number int) *schedule {
	s := &schedule{attacks: attacks, number: number}
	for _, attack := range attacks {
		s.total += max(1, attack.Weight)
	}
	return s
}

// next is the index of the attack to make now.
func (s *schedule) next(a *attacker) int {
	s.made++
	if s.made <= len(s.attacks) {
		return (s.number + s.made) % len(s.attacks)
	}
	n := a.IntN(s.total)
	return slices.IndexFunc(s.attacks, func(attack Attack) bool {
		n -= max(1, attack.Weight)
		return n < 0
	})
}

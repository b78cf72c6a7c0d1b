package redis

import (
	"math/big"
	"testing"
	"time"
)

// FuzzRedisValues reads what others may have written into the keys of locks: a token
// is what stands there or none, and what is no time holds no lock.
func FuzzRedisValues(f *testing.F) {
	for _, seed := range []string{"1000000000000001", "18446744073709551615", "18446744073709551616", "0", "0x10", "-1", "+1", "1e9", " 1", "", "1\n", "\xff"} {
		f.Add(int64(taken), seed)
	}
	f.Add(int64(noFloor), "0")
	f.Add(int64(taken), "1700000000000") // the time of the look: it is over
	now := time.UnixMilli(1_700_000_000_000)
	f.Fuzz(func(t *testing.T, status int64, stored string) {
		number, isNumber := new(big.Int).SetString(stored, 10)
		g, err := readGrant([]any{status, stored}, nil)
		switch {
		case err != nil && g != outcome{}:
			t.Errorf("%q is no token (%v), and still %+v is granted", stored, err, g)
		case err == nil && (!isNumber || !number.IsUint64() || number.Uint64() != g.token || g.status != status):
			t.Errorf("%d with %q is read as %+v", status, stored, g)
		}
		if isHeld(stored, now) && (!isNumber || number.Cmp(big.NewInt(now.UnixMilli())) <= 0) {
			t.Errorf("%q holds the lock at %d", stored, now.UnixMilli())
		}
	})
}

// A script that others have put in the place of ours may answer anything.
func TestAnAnswerThatIsNoGrantIsRefused(t *testing.T) {
	for _, answer := range [][]any{nil, {}, {int64(1)}, {int64(1), nil}, {int64(1), int64(1)}, {"1", "1"}, {int64(1), "1", "1"}} {
		if g, err := readGrant(answer, nil); err == nil {
			t.Errorf("%v is read as %+v", answer, g)
		}
	}
}

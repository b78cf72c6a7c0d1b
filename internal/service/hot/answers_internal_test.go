package hot

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/stock"
)

// FuzzAnswers reads what the script answers of keys that others may have written:
// figures are what stands there, or an error and no counter; and of a purchase there
// is one answer.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"5\n0\n1", "-3\n2\n9223372036854775807", "9223372036854775808\n0\n1", "1e9\n0\n1", "nan\n\n", "ABSENT", "2 1", "2", " 2\t1 x", "1-0"} {
		f.Add(seed, int64(answerSold))
	}
	f.Fuzz(func(t *testing.T, text string, code int64) {
		var row []any
		for word := range strings.SplitSeq(text, "\n") {
			row = append(row, word)
		}
		d, err := readCounter(row)
		if err != nil && d != (Drift{}) {
			t.Errorf("%q is no counter (%v), and read as %+v", text, err, d)
		}
		for i, figure := range []int64{d.Redis, d.Pending, d.Epoch} {
			if !d.Loaded {
				break
			}
			if n, ok := new(big.Int).SetString(fmt.Sprint(row[i]), 10); !ok || n.Cmp(big.NewInt(figure)) != 0 {
				t.Errorf("%q is read as %+v", text, d)
			}
		}
		list, err := readVerdicts([]any{[]any{code, text}}, 1)
		if err != nil || len(list) != 1 || list[0] != (verdict{answer: code, text: text}) {
			t.Errorf("%d with %q is read as %+v (%v)", code, text, list, err)
		}
		if list, err := readVerdicts([]any{row}, 1); err == nil {
			t.Errorf("%q is read as %+v", row, list)
		}
		if err := readLimited(text); !errors.Is(err, stock.ErrUserLimit) {
			t.Errorf("a limit of %q is %v", text, err)
		}
		if at, err := addedAt(text); err != nil && !at.IsZero() {
			t.Errorf("%q is no id (%v), and of %s", text, err, at)
		}
	})
}

package checker_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func TestLinearizability(t *testing.T) {
	legal := func(name string, records ...any) []row {
		h := of(records...)
		return []row{{name, checker.Linearizable(), h, true, nil}, {name + " is not illegal", checker.NotLinearizable(), h, false, nil}}
	}
	illegal := func(name string, records ...any) []row {
		h := of(records...)
		return []row{{name, checker.NotLinearizable(), h, true, nil}, {name + " is not legal", checker.Linearizable(), h, false, nil}}
	}
	neither := func(name string, records ...any) []row {
		h := of(records...)
		return []row{{name + ", and not legal", checker.Linearizable(), h, false, nil}, {name + ", and not illegal", checker.NotLinearizable(), h, false, nil}}
	}
	ten := audit(0, 10, 10, 10)
	two := []history.Request{sold(0, 10, left(9)), sold(20, 30, left(8))}
	refilled := audit(0, 5, 5, 5)
	refilled.At = at(0)
	judge(t, slices.Concat(
		legal("one after the other", two, ten),
		legal("at once, answered the other way round", sold(0, 30, left(8)), sold(5, 20, left(9)), ten),
		legal("rejected while the last is sold", sold(0, 10, left(8), quantity(2)), sold(20, 40, left(0), quantity(8)), rejected(21, 30), ten),
		legal("rejected because it is too many", two, rejected(40, 50, quantity(9)), ten),
		legal("a failed one did nothing", two, failed("busy", 12, 14), ten),
		legal("of unknown outcome, and did not happen", unknown(0, 5), two, ten),
		legal("of unknown outcome, and happened", unknown(0, 5), sold(10, 20, left(9)), sold(30, 40, left(7)), ten),
		legal("of unknown outcome, and happened long after", two, unknown(0, 1, quantity(4)), sold(50, 60, left(3)), ten),
		legal("of unknown outcome, sent twice under its key, and happened between",
			unknown(20, 25, key("k")), unknown(0, 30, key("k")), sold(10, 15, left(8)), sold(40, 50, left(7)), ten),
		legal("sent again under its key", unknown(0, 5, key("k")), sold(10, 20, left(8)), sold(30, 40, left(9), key("k"), order("a")), ten),
		legal("answered again under its key", sold(0, 5, left(9), key("k"), order("a")), sold(10, 20, left(8)), sold(30, 40, left(9), key("k"), order("a")), ten),

		illegal("both found the same", sold(0, 10, left(9)), sold(5, 20, left(9)), ten),
		illegal("one after the other in the wrong order", sold(0, 10, left(8)), sold(20, 30, left(9)), ten),
		illegal("more than there is", sold(0, 10, left(-1), quantity(11)), sold(0, 10, left(9)), ten),
		illegal("more than is left", sold(0, 10, left(9)), sold(20, 30, left(-1), quantity(10)), ten),
		illegal("answered again under its key, and then both found the same",
			sold(0, 5, left(9), key("k"), order("a")), sold(10, 20, left(9), key("k"), order("a")), sold(30, 40, left(9)), ten),
		illegal("of an item, beside one that was stocked again",
			sold(0, 10, left(9)), sold(5, 20, left(9), goods(8)), sold(5, 20, left(9), goods(8)), ten, refilled, history.Audit{At: at(99), Audit: stock.NewAudit(8, 8, 10, 2, 2)}),
		illegal("a sale without a purchase", sold(0, 10, left(9)), sold(20, 30, left(7)), ten),
		illegal("rejected although it was there", two, rejected(40, 50), ten),
		illegal("rejected before the sale, beside a rejection that was sent earlier and answered later",
			rejected(0, 100, quantity(6)), rejected(10, 20, quantity(6)), sold(30, 40, left(4), quantity(6)), sold(50, 60, left(3)), ten),
		illegal("rejected before it was sold out", sold(0, 10, left(1), quantity(9)), rejected(12, 15), sold(20, 30, left(0)), ten),
		illegal("of unknown outcome, and happened before it was sent", sold(0, 10, left(9)), sold(20, 30, left(7)), unknown(40, 50), ten),
		illegal("of unknown outcome, and happened twice", unknown(0, 5), sold(10, 20, left(7)), ten),
		illegal("answered again without a key", sold(0, 5, left(9), order("a")), sold(30, 40, left(9), order("a")), ten),
		illegal("two orders under one key", sold(0, 5, left(9), key("k"), order("a")), sold(30, 40, left(9), key("k"), order("b")), ten),

		neither("no audit tells what there was", two),
		neither("another goods was not audited", two, sold(0, 1, goods(8)), ten),
		neither("stocked again meanwhile", two, ten, refilled),
		neither("stocked again meanwhile, and both found the same", sold(0, 10, left(9)), sold(5, 20, left(9)), ten, refilled),
		neither("one sale", sold(0, 10, left(9)), ten),
		neither("no sale", rejected(0, 10, quantity(11)), ten),
	))
}

func TestWindowsEndWhereNothingIsOpen(t *testing.T) {
	two := []history.Request{sold(0, 10, left(9)), sold(5, 15, left(8)), sold(20, 30, left(7))}
	judge(t, []row{
		{"two windows", checker.Linearizable(), of(two, audit(7, 10, 3, 3)), true, map[string]float64{"windows": 2, "largest_window_operations": 2, "operations": 3}},
		{"one, while an outcome is unknown", checker.Linearizable(), of(unknown(0, 1), two, audit(7, 10, 3, 3)), true, map[string]float64{"windows": 1}},
	})
}

// A window that is too long to check is not taken for a good one.
func TestUndecidedIsNeitherLegalNorIllegal(t *testing.T) {
	const many = 10_001
	long := make([]history.Request, 0, many)
	for i := range many {
		long = append(long, sold(i, i+2, left(int64(many-1-i))))
	}
	h := of(long, audit(0, many, many, many))
	judge(t, []row{
		{"not legal", checker.Linearizable(), h, false, nil},
		{"not illegal", checker.NotLinearizable(), h, false, nil},
	})
	should.Be(t, checker.Linearizable()(h).Facts[0].Code, "undecided", "what it says")
}

// The search looks at ever longer beginnings of a window, and names the first answer that is wrong.
func TestTheFirstWrongAnswerOfALongWindowIsNamed(t *testing.T) {
	const all, wrong = 200, 99
	long := make([]history.Request, 0, all)
	for i := range all {
		remaining := int64(all - 1 - i)
		if i == wrong {
			remaining -= 7
		}
		long = append(long, sold(i, i+2, left(remaining), client(i)))
	}
	says(t, checker.NotLinearizable(), of(long, audit(0, all, all, all)), checker.Say("not-linearizable", 99, 100, all), checker.Say("answer-sold", 1, 93))
}

func TestAnItemThatWasStockedTwiceIsUndecided(t *testing.T) {
	refilled := audit(0, 5, 5, 5)
	refilled.At = at(0)
	says(t, checker.Linearizable(), of(sold(0, 10, left(9)), sold(20, 30, left(8)), audit(0, 10, 10, 10), refilled), checker.Say("undecided"), checker.Say("stocked-twice", 7))
}

// A crowd that all read the same is found out at once, however many there are, and
// so is a crowd in good order: the search must not blow up with either.
func TestLongHistoriesAreDecided(t *testing.T) {
	const clients, each = 50, 100
	const all = clients * each
	good, bad := make([]history.Request, 0, 2*all), make([]history.Request, 0, all)
	for i := range all {
		good = append(good, sold(i, i+clients, left(int64(all-1-i)), client(i%clients)), rejected(all+i, all+2*clients+i))
		bad = append(bad, sold(i, i+clients, left(int64(all-1-i/5)), client(i%clients)))
	}
	judge(t, []row{
		{"in order, of another stock", checker.NotLinearizable(), of(good[:all], audit(0, all/2, 0, 0)), true, nil},
		{"in order to the end", checker.Linearizable(), of(good, audit(0, all, all, all)), true, nil},
		{"five read the same", checker.NotLinearizable(), of(bad, audit(0, all, all, all)), true, nil},
	})
}

// Where the search is cut short, it must not say anything else than porcupine does
// of the whole history with a model that knows no shortcut.
func TestShortcutsDoNotChangeTheAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	count := make(map[bool]int)
	for range 4000 {
		requests := someRequests(random)
		want := porcupine.CheckOperations(plain(5), plainOperations(requests))
		h := of(requests, audit(0, 5, 5, 5))
		count[want]++
		if got := !checker.NotLinearizable()(h).Holds; got != want {
			t.Fatalf("linearizable: %v, want %v: %+v", got, want, requests)
		}
		if f := checker.Linearizable()(h); f.Holds && !want {
			t.Fatalf("%s: %+v", f.Says, requests)
		}
	}
	if count[true] < 500 || count[false] < 500 {
		t.Errorf("too few of one kind: %v", count)
	}
}

// someRequests sells 5 units in a legal order, with a lie here and there.
func someRequests(random *rand.Rand) (requests []history.Request) {
	stock := int64(5)
	for i := range 3 + random.IntN(6) {
		units := 1 + random.Int64N(2)
		start := i*10 - random.IntN(30)
		end := i*10 + 1 + random.IntN(30)
		changes := []change{client(i), quantity(units)}
		fits := units <= stock
		if fits {
			stock -= units
		}
		switch said := random.IntN(12); {
		case said == 0:
			requests = append(requests, unknown(start, end, changes...))
			if random.IntN(2) == 0 && fits {
				stock += units
			}
		case said == 1:
			requests = append(requests, sold(start, end, append(changes, left(random.Int64N(5)))...))
		case said == 2 || !fits:
			requests = append(requests, rejected(start, end, changes...))
		default:
			requests = append(requests, sold(start, end, append(changes, left(stock))...))
		}
	}
	return requests
}

// plain is the stock of one goods as simply as can be said.
func plain(initial int64) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, _ any) []any {
			left, _ := state.(int64)
			r, _ := input.(history.Request)
			after := left - r.Quantity
			switch {
			case r.Outcome == history.Unknown && after >= 0:
				return []any{left, after}
			case r.Outcome == history.Unknown:
				return []any{left}
			case r.Outcome == history.Rejected && after < 0:
				return []any{left}
			case r.Outcome == history.Sold && after >= 0 && after == r.Remaining:
				return []any{after}
			default:
				return nil
			}
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return model.ToModel()
}

func plainOperations(requests []history.Request) (ops []porcupine.Operation) {
	for _, r := range requests {
		end := r.End
		if r.Outcome == history.Unknown {
			end = at(1_000_000)
		}
		ops = append(ops, porcupine.Operation{Input: r, Call: r.Start.UnixNano(), Return: end.UnixNano()})
	}
	return ops
}

func TestThePictureIsOfWhatIsIllegal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "illegal.html")
	fine := of(sold(0, 10, left(9)), sold(20, 30, left(8)), audit(8, 10, 2, 2))
	if drawn, err := checker.DrawIllegal(fine, path); drawn || err != nil {
		t.Errorf("drawn %v, %v", drawn, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a picture of what is legal")
	}
	wrong := of(sold(0, 10, left(9)), sold(20, 40, left(8)), sold(25, 45, left(8)), sold(30, 90, left(7)), sold(100, 110, left(6)), audit(0, 10, 2, 2))
	drawn, err := checker.DrawIllegal(wrong, path)
	if !drawn || err != nil {
		t.Fatalf("drawn %v, %v", drawn, err)
	}
	page := must.Get(os.ReadFile(path))(t)
	for _, want := range []string{"sold 1, 8 left", "sold 1, 7 left (still open)", "here the window is cut"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the picture does not show %q", want)
		}
	}
	if strings.Contains(string(page), "sold 1, 6 left") {
		t.Error("the picture shows what came after the contradiction")
	}
	must.Do(t, os.Remove(path))
	if drawn, err := checker.DrawIllegal(wrong, filepath.Join(path, "no", "folder")); drawn || err == nil {
		t.Error("a picture was drawn into no folder")
	}
}

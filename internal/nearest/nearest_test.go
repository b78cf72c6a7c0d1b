package nearest_test

import (
	"testing"

	"github.com/stockd/stockd/internal/nearest"
	"github.com/stockd/stockd/internal/should"
)

func TestOnlyANearNameIsSuggested(t *testing.T) {
	known := []string{"demo", "live", "lab", "strategies", "库存"}
	for word, want := range map[string]string{
		"dmeo": "demo", "strategy": "strategies", "lib": "lab", "99": "", "x": "", "": "", "strategically": "", "库": "", "库有": "库存",
	} {
		should.Be(t, nearest.Of(word, known), want, word, "is taken for")
	}
}

// A list that every wrong word has its suggestion from would hide them.
func TestEveryUnknownNameIsReported(t *testing.T) {
	for want, words := range map[string][]string{
		"": {"naive", "mutex"},
		`"nave" is not a strategy (did you mean naive?)`:                                                   {"nave", "mutex"},
		`"nave" is not a strategy (did you mean naive?), "hope" is not a strategy; there are naive, mutex`: {"nave", "hope"},
	} {
		got := ""
		if err := nearest.Check("a strategy", []string{"naive", "mutex"}, words...); err != nil {
			got = err.Error()
		}
		should.Be(t, got, want, "of", words, "it says")
	}
}

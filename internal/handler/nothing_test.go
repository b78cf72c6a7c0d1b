package handler_test

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/handler"
)

func TestNothingAnswersInTheShapeOfASale(t *testing.T) {
	a := serveSQLite(t)
	sale := a.buy(t, "goods_id=1")
	nothing, err := handler.Nothing(handler.Options{Replica: "replica-1", MaxBody: 4096, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(nothing)
	defer server.Close()
	fixed := send(t, request(t, http.MethodPost, server.URL+"/deduct?goods_id=1", "", ""))
	keys := func(a answer) []string { return slices.Sorted(maps.Keys(a.body)) }
	if fixed.status != sale.status || !slices.Equal(keys(fixed), keys(sale)) {
		t.Errorf("nothing answers %d %s, a sale %d %s", fixed.status, fixed.text, sale.status, sale.text)
	}
	if fixed.header.Get("Content-Type") != sale.header.Get("Content-Type") {
		t.Errorf("nothing answers as %q, a sale as %q", fixed.header.Get("Content-Type"), sale.header.Get("Content-Type"))
	}
	// Its numbers are as long as those of a sale of plenty.
	if more := len(fixed.text) - len(sale.text); more < 0 || more > 32 {
		t.Errorf("nothing answers with %d bytes, a sale with %d", len(fixed.text), len(sale.text))
	}
}

func TestAnAuditMayBeAskedForInFull(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1")
	for query, want := range map[string]int{"": http.StatusOK, "?full=true": http.StatusOK, "?full=very": http.StatusBadRequest, "?deep=true": http.StatusBadRequest} {
		got := send(t, request(t, http.MethodGet, a.public.URL+"/goods/1/audit"+query, "", ""))
		if got.status != want || want == http.StatusOK && got.body["sold"] != 1.0 {
			t.Errorf("audit%s is answered with %d %s, want %d", query, got.status, got.text, want)
		}
	}
}

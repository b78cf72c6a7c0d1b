package handler_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/should"
)

// The answer says where the order is written down. durable=sql waits for the
// ledger; the strategies that write it themselves always have.
func TestTheAnswerSaysHowDurableItIs(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveWith(t, d, lab.Locks(t, d, backend.Redis))
	for i, c := range []struct{ query, durable string }{
		{"strategy=redis-stock", "redis"},
		{"strategy=redis-stock&durable=redis", "redis"},
		{"strategy=redis-stock&durable=sql", "sql"},
		{"strategy=sql-conditional", "sql"},
		{"strategy=sql-conditional&durable=redis", "sql"},
	} {
		a.asAdmin(t, http.MethodPost, "/goods", fmt.Sprintf(`{"goods_id":%d,"stock":10}`, i+2), http.StatusCreated)
		got := a.buy(t, fmt.Sprintf("goods_id=%d&%s", i+2, c.query))
		got.is(t, "", "durable", c.durable)
	}
	got := a.asAdmin(t, http.MethodGet, "/goods/2/drift", "", http.StatusOK)
	should.Be(t, got.body["installed"], true, "the drift is …", got.body)
}

func TestGroupIsAFlagThatComposesWithFence(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1&group=maybe").names(t, "group")
	a.buy(t, "goods_id=1&group=true&fence=true").names(t, "fence")
	got := a.buy(t, "goods_id=1&group=true&fence=true&strategy=sql-version-lock")
	if token, _ := got.body["token"].(float64); got.status != http.StatusOK || token < 1 {
		t.Errorf("grouped and fenced is answered with %d %s", got.status, got.text)
	}
}

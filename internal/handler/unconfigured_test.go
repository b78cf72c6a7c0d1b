package handler_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/handler"
)

// Anybody may name a strategy: one that cannot be used here costs no line of the log.
func TestAStrategyWithoutItsBackendIsRejected(t *testing.T) {
	var log bytes.Buffer
	quiet := func(o *handler.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	a := serveSQLite(t).with(t, quiet).withAdmin(t, quiet)
	for name, backend := range map[string]string{
		"redis-decr": "redis", "redis-stock": "redis", "redis-lua": "redis", "redlock": "redlock",
		"zk-sequential": "zookeeper", "etcd": "etcd", "sql-row-lock": "mysql",
	} {
		for what, got := range map[string]answer{
			"a purchase":    a.buy(t, "goods_id=1&strategy="+name),
			"a grouped one": a.buy(t, "goods_id=1&group=true&strategy="+name),
			"a change":      a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "`+name+`"}`, http.StatusForbidden),
			"a creation":    a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 1, "strategy": "`+name+`"}`, http.StatusForbidden),
		} {
			if got.status != http.StatusForbidden || got.problem() != "strategy-refused" || got.body["backend"] != backend ||
				!strings.Contains(got.text, name+", because "+backend+" is not configured") {
				t.Errorf("%s by %s is answered with %d %s", what, name, got.status, got.text)
			}
		}
		if s := a.described(t, name); s["enabled"] != true || s["available"] != false {
			t.Errorf("%s is described as %v", name, s)
		}
	}
	a.public.Close()
	a.admin.Close() // so that all of the log is written
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, `"admin write"`) {
			t.Errorf("the log has %s", line)
		}
	}
}

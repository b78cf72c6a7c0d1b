package handler_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/telemetry"
)

// Each answer says why, and what is allowed, and nothing of another reason.
func TestARejectionSaysItsOwnReason(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })
	for query, want := range map[string][]string{
		"goods_id=1&strategy=hope":      {`\"hope\" is unknown; allowed are those of GET /strategies that are available`, "unknown-strategy"},
		"goods_id=1&strategy=redis-lua": {`\"redis-lua\" is not available here; allowed are those of GET /strategies that are available`, "strategy-refused"},
		"goods_id=1&quantity=11":        {"insufficient-stock"},
	} {
		got := a.buy(t, query)
		for _, words := range want {
			if !strings.Contains(got.text, words) {
				t.Errorf("%s is answered with %s, want %s", query, got.text, words)
			}
		}
		if strings.Contains(got.text, "one buyer may have") {
			t.Errorf("%s is answered with a limit: %s", query, got.text)
		}
	}
}

func TestTheTimesOfASaleAreMilliseconds(t *testing.T) {
	a := serveSQLite(t)
	began := time.Now()
	got := a.buy(t, "goods_id=1&strategy=mutex")
	took := float64(time.Since(began).Microseconds()) / 1000
	wait, _ := got.body["wait_ms"].(float64)
	if hold, ok := got.body["hold_ms"].(float64); !ok || hold <= 0 || wait < 0 || wait+hold > took {
		t.Errorf("a sale that took %v ms says %s", took, got.text)
	}
	a, _ = serveTimed(t)
	for _, path := range []string{"/deduct", "/reservations"} {
		got := a.post(t, path+"?goods_id=1&strategy=timed")
		if got.body["wait_ms"] != 1.5 || got.body["hold_ms"] != 20.0 || got.body["token"] != 0.0 || got.body["replica"] != "replica-1" {
			t.Errorf("a wait of 1.5 ms and a hold of 20 ms are answered by %s with %s", path, got.text)
		}
	}
}

func TestAFailedPurchaseIsLogged(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).with(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil)))
	})
	if got := a.buy(t, "goods_id=1&quantity=11"); got.status != http.StatusConflict || log.Len() != 0 {
		t.Errorf("sold out is answered with %d, and the log has %s", got.status, &log)
	}
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := a.buy(t, "goods_id=1"); got.status != http.StatusServiceUnavailable || strings.Count(log.String(), "msg=") != 1 || !strings.Contains(log.String(), "/deduct") {
		t.Errorf("without a database: %d, and the log has %s", got.status, &log)
	}
}

func TestTheKeyOfAnAdminWriteIsInTheAuditLog(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewJSONHandler(&log, nil)))
	})
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 5}`, http.StatusOK)
	if got := a.ownerKeyed(t, "restock-1", "/goods/1/restock?quantity=5"); got.status != http.StatusOK {
		t.Fatalf("answered with %d %s", got.status, got.text)
	}
	long := strings.Repeat("9", 300)
	a.ownerKeyed(t, long, "/goods/1/restock?quantity="+long)
	lines := auditLines(t, log.String())
	if len(lines) != 3 {
		t.Fatalf("logged in %d lines: %s", len(lines), &log)
	}
	if _, ok := lines[0].Asked["idempotency_key"]; ok || lines[1].Asked["idempotency_key"] != "restock-1" {
		t.Errorf("the keys are logged as %v and %v", lines[0].Asked, lines[1].Asked)
	}
	if short := long[:200] + "…"; lines[2].Asked["idempotency_key"] != short || lines[2].Asked["quantity"] != short {
		t.Errorf("what is too long is logged as %v", lines[2].Asked)
	}
}

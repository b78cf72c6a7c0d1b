package handler_test

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
)

func TestNothingAnswersInTheShapeOfASale(t *testing.T) {
	a := serveSQLite(t)
	sale := a.buy(t, "goods_id=1")
	nothing, err := handler.Baseline(handler.Options{Replica: "replica-1", MaxBody: 4096, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(nothing)
	defer server.Close()
	fixed := send(t, request(t, http.MethodPost, server.URL+"/deduct?goods_id=1", "", ""))
	for _, got := range []answer{fixed, sale} {
		if got.header.Get(handler.ReplicaHeader) != "replica-1" {
			t.Errorf("an answer that reveals its replica has the header %v", got.header)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := sendRaw(nothing, http.MethodGet, path, from("192.0.2.1")); got.Code != http.StatusOK {
			t.Errorf("%s is answered with %d %s", path, got.Code, got.Body)
		}
	}
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

// A full audit has a time limit of its own, and the other one that of every request.
func TestAFullAuditHasATimeLimitOfItsOwn(t *testing.T) {
	a := serveSQLite(t)
	hurried := a.withAdmin(t, func(o *handler.Options) { o.Timeout, o.AuditTimeout = time.Nanosecond, time.Minute })
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit?full=true", "", http.StatusOK)
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusServiceUnavailable)
	hurried = a.withAdmin(t, func(o *handler.Options) { o.Timeout, o.AuditTimeout = time.Minute, time.Nanosecond })
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit?full=true", "", http.StatusServiceUnavailable)
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusOK)
}

// deadlined is a writer with a deadline.
type deadlined struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

// The server's own limit is too short for the answer to a full audit.
func TestAFullAuditExtendsTheTimeToAnswer(t *testing.T) {
	a := serveSQLite(t)
	a.options.Timeout, a.options.AuditTimeout = time.Minute, time.Hour
	admin := handler.Admin(a.options, admintoken.Single(token))
	for path, extended := range map[string]bool{"/goods/1/audit?full=true": true, "/goods/1/audit": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		admin.ServeHTTP(w, r)
		if w.Code != http.StatusOK || (time.Until(w.deadline) > 59*time.Minute) != extended {
			t.Errorf("%s is answered with %d, and may be sent until %s", path, w.Code, w.deadline)
		}
	}
}

// Every row of the ledger is read for the admin alone: it takes a while.
func TestTheAdminMayRequestAFullAudit(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1")
	for _, c := range []struct {
		by, query string
		want      int
	}{
		{a.public.URL, "", http.StatusOK},
		{a.public.URL, "?full=true", http.StatusBadRequest},
		{a.admin.URL, "", http.StatusOK},
		{a.admin.URL, "?full=true", http.StatusOK},
		{a.admin.URL, "?full=very", http.StatusBadRequest},
		{a.admin.URL, "?deep=true", http.StatusBadRequest},
	} {
		asked := request(t, http.MethodGet, c.by+"/goods/1/audit"+c.query, "", "")
		asked.Header.Set("Authorization", "Bearer "+token)
		got := send(t, asked)
		if got.status != c.want || c.want == http.StatusOK && got.body["sold"] != 1.0 {
			t.Errorf("audit%s is answered with %d %s, want %d", c.query, got.status, got.text, c.want)
		}
	}
	a.asAdmin(t, http.MethodGet, "/goods/2/audit", "", http.StatusNotFound)
	a.asAdmin(t, http.MethodGet, "/goods/2/audit?full=true", "", http.StatusNotFound)
}

package replica

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
)

// What the store tells of is counted in a replica, and not only where a test asks for it.
func TestTheStoreIsHeard(t *testing.T) {
	c := config.Config{Replica: "r", Log: config.Log{Level: "info"}}
	observed := must.Get(observe(t.Context(), c, io.Discard, nil))(t)
	observed.storeOptions(c).Retried("mutex")
	w := httptest.NewRecorder()
	observed.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if want := `stockd_transaction_retries_total{strategy="mutex"} 1`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("the scrape lacks %s", want)
	}
}

package handler_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestAPurchaseWaitsNoLongerThanLockWait(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		query  string
		status int
		detail string
	}{
		{"strategy=mutex&wait_ms=1", http.StatusOK, ""},
		{"strategy=mutex&wait_ms=1000", http.StatusOK, ""},
		{"strategy=mutex&wait_ms=1001", http.StatusBadRequest, "from 1 to 1000, which is lock.wait, not 1001"},
		{"strategy=mutex&group=true&wait_ms=1", http.StatusBadRequest, "with group=true"},
		{"strategy=sql-conditional&wait_ms=1", http.StatusBadRequest, "sql-conditional has no lock"},
	} {
		if got := a.buy(t, "goods_id=1&"+c.query); got.status != c.status || !strings.Contains(got.text, c.detail) {
			t.Errorf("%s is answered with %d, want %d and %q: %s", c.query, got.status, c.status, c.detail, got.text)
		}
	}
}

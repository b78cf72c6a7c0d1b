package handler_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// A purchase without a key asks the database as often as its strategy does, and one with
// a key once more.
func TestAKeyCostsOneSearchOfTheLedger(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	a := serve(t, d)
	pool, _, err := d.Pool(1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close() //nolint:errcheck // it was only asked
	asked := func() (n float64) {
		var name string
		if err := pool.QueryRowContext(t.Context(), `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const sales = 40
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 1000}`, http.StatusOK)
	for keyed, want := range map[bool]float64{false: 4, true: 5} {
		a.buy(t, "goods_id=1") // the connections are there after that
		before := asked()
		for i := range sales {
			header := "X-Request-Id"
			if keyed {
				header = "Idempotency-Key"
			}
			if got := a.buyAs(t, "goods_id=1", header, fmt.Sprint("key-", i)); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.text)
			}
		}
		if each := math.Round((asked() - before) / sales); each != want {
			t.Errorf("a sale with a key %v asks the database %g times, want %g", keyed, each, want)
		}
	}
}

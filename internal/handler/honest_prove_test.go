//go:build prove

package handler_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/servers"
)

// sample is what honest purchases of item 1 came to.
type sample struct {
	p50, p99            time.Duration
	purchases, rejected int
}

// Honest purchases of an item are sold while another item, or a strategy that they do not
// ask for, is flooded. The bounds are wide: a machine that is never quiet runs this.
func TestProveHonestPurchasesBesideAFlood(t *testing.T) {
	const rounds = 5
	d := lab.Database(t, servers.MariaDB)
	a := serveWith(t, d, lab.Locks(t, d))
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 10000000}`, http.StatusOK)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10000000}`, http.StatusCreated)
	options := a.options
	options.MaxDeductions = 100
	served := handler.Public(options)
	floods := []struct {
		name     string
		targets  []string
		rejected float64 // at most this share of the honest purchases
	}{
		{"nothing", nil, 0},
		{"item 2 by sql-for-update", []string{"goods_id=2&strategy=sql-for-update"}, 0.01},
		{"item 2 by its own strategy", []string{"goods_id=2"}, 0.01},
		{"item 2 by locks in SQL", []string{"goods_id=2&strategy=sql-row-lock", "goods_id=2&strategy=sql-insert-lock", "goods_id=2&strategy=sql-named-lock"}, 0.01},
		{"item 1 by sql-for-update", []string{"goods_id=1&strategy=sql-for-update"}, 0.01},
		{"item 1 by locks in SQL", []string{"goods_id=1&strategy=sql-row-lock", "goods_id=1&strategy=sql-insert-lock", "goods_id=1&strategy=sql-named-lock"}, 0.01},
	}
	samples := make([][]sample, len(floods))
	for range rounds {
		for i, f := range floods {
			samples[i] = append(samples[i], honestBeside(served, f.targets))
		}
	}
	var baseline sample
	for i, f := range floods {
		slices.SortFunc(samples[i], func(a, b sample) int { return int(a.p99 - b.p99) })
		median := samples[i][rounds/2]
		if i == 0 {
			baseline = median
		}
		share := float64(median.rejected) / float64(max(1, median.purchases))
		t.Logf("beside %-28s p50 %8s, p99 %8s (%.1f times the baseline), %5d purchases, %.1f%% rejected", f.name+":",
			median.p50.Round(time.Microsecond), median.p99.Round(time.Microsecond), float64(median.p99)/float64(baseline.p99), median.purchases, 100*share)
		if share > f.rejected {
			t.Errorf("beside a flood of %s %.1f%% of the honest purchases are rejected", f.name, 100*share)
		}
	}
}

// honestBeside buys item 1 from a few clients while many flood the targets.
func honestBeside(served http.Handler, targets []string) sample {
	const (
		honest, flooding = 4, 300
		long             = 1500 * time.Millisecond
	)
	var stop atomic.Bool
	var crowd sync.WaitGroup
	for i := range flooding {
		if len(targets) > 0 {
			crowd.Go(func() {
				for !stop.Load() {
					if status := purchase(served, targets[i%len(targets)]); status != http.StatusOK {
						time.Sleep(20 * time.Millisecond) // the client's CPU is the server's here
					}
				}
			})
		}
	}
	time.Sleep(long / 5) // so that the flood is there
	taken := make([][]time.Duration, honest)
	var rejected atomic.Int64
	var buyers sync.WaitGroup
	for i := range honest {
		buyers.Go(func() {
			for end := time.Now().Add(long); time.Now().Before(end); {
				start := time.Now()
				if purchase(served, "goods_id=1") != http.StatusOK {
					rejected.Add(1)
				}
				taken[i] = append(taken[i], time.Since(start))
			}
		})
	}
	buyers.Wait()
	stop.Store(true)
	crowd.Wait()
	all := slices.Concat(taken...)
	slices.Sort(all)
	return sample{all[len(all)/2], all[len(all)*99/100], len(all), int(rejected.Load())}
}

func purchase(served http.Handler, query string) (status int) {
	w := httptest.NewRecorder()
	served.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/deduct?"+query, http.NoBody))
	return w.Code
}

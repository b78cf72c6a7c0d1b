package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stockd/stockd/pkg/client"
)

// A replica that has no place for a purchase says when to come again, and the client
// does.
func TestThePublicClientComesAgain(t *testing.T) {
	r := startReplica(t, "--http-max-deductions=1")
	held := r.hold(t, "mutex", 1, 1500*time.Millisecond)
	start := time.Now()
	sale, err := client.Client{URL: r.URL}.Deduct(t.Context(), client.Purchase{GoodsID: 1})
	if err != nil || sale.OrderID == "" || time.Since(start) < time.Second {
		t.Errorf("sold %+v (%v) after %s", sale, err, time.Since(start))
	}
	for _, answered := range held {
		if got := <-answered; got.Status != http.StatusOK {
			t.Errorf("the purchase that had the place is answered with %d %s", got.Status, got.Text)
		}
	}
}

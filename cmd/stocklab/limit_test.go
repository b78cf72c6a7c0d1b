package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// One buyer asks a hundred times at once, alone and grouped in turn, through the
// balancer over three replicas, for an item of which a buyer may have three.
func aBuyerGetsNoMoreThanTheLimit(t *testing.T, l testLab, s service.Description) {
	if !s.Guarantees.ExclusiveAcrossReplicas {
		t.Skip("it is not for a shop: the suite of the strategies holds it to the limit")
	}
	const units, perUser = 500, 3
	goods := l.goods.Add(1)
	if err := l.cluster.Client().CreateLimited(t.Context(), goods, units, perUser); err != nil {
		t.Fatal(err)
	}
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for i := range copiesOf(s) {
		buyers.Go(func() {
			url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=%s&user_id=xiaoming&group=%v", l.cluster.URL, goods, s.Name, i%2 == 0)
			switch status, answer := post(t, url, ""); {
			case status == http.StatusOK:
				sold.Add(1)
			case status != http.StatusConflict || answer["type"] != "urn:stockd:problem:user-limit" ||
				answer["per_user"] != float64(perUser) || answer["has"] != float64(perUser):
				t.Errorf("beyond the limit the answer is %d %v", status, answer)
			}
		})
	}
	buyers.Wait()
	audit, err := l.cluster.Client().Audit(t.Context(), goods) // waits for what is pending
	if err == nil {
		audit, err = l.cluster.Client().AuditInFull(t.Context(), goods)
	}
	if err != nil {
		t.Fatal(err)
	}
	if sold.Load() != perUser || audit.Sold != perUser || audit.Stock != units-perUser || !audit.Clean ||
		audit.Buyers == nil || *audit.Buyers != (stock.Buyers{}) {
		t.Errorf("%d were sold to a buyer who may have %d, and the audit is %+v, of buyers %+v", sold.Load(), perUser, audit, audit.Buyers)
	}
}

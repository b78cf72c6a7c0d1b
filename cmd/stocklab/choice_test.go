package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
)

// chosen is how an item is sold, as PATCH takes it.
type chosen struct {
	Strategy string `json:"strategy"`
	Group    bool   `json:"group"`
	Fence    bool   `json:"fence"`
}

// changing are the strategies that an item goes through while it is on sale. All of
// them sell from the row.
func changing() []chosen {
	return []chosen{
		{Strategy: "sql-conditional", Group: true},
		{Strategy: "sql-for-update"},
		{Strategy: "sql-optimistic", Group: true},
		{Strategy: "sql-insert-lock", Group: true, Fence: true},
		{Strategy: "sql-conditional"},
		{Strategy: "redis-reentrant", Group: true},
	}
}

// seenWithin is how long a replica may go on as an item was before its change.
const seenWithin = time.Second

// An item changes its strategy again and again while it is on sale: every buyer who was
// answered has its order, no order is doubled, and each replica follows in time.
func TestAnItemChangesItsStrategyUnderLoad(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedRedis(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local, ZooKeeper: servers.None, Etcd: servers.None},
		cluster.Options{Replicas: 3, Env: []string{"STOCKD_DEDUCT_CHOOSE=false"}})
	sale := &rollingSale{clients: 48, goods: l.create(t, plenty)}
	l.sellOn(t, []*rollingSale{sale}, func() {
		cmdtest.Await(t, "the sale to begin", 10*time.Second, sale.begun)
		for round := range 2 {
			for i, to := range changing() {
				l.choose(t, (i+round)%len(l.cluster.Replicas), sale, to)
			}
		}
	})
}

// choose changes an item through one replica, which follows at once, and waits for the
// others, which have a second.
func (l testLab) choose(t *testing.T, through int, sale *rollingSale, to chosen) {
	t.Helper()
	body, err := json.Marshal(to)
	if err != nil {
		t.Error(err)
		return
	}
	admin := l.cluster.ClientOf(through)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, fmt.Sprintf("%s/goods/%d", admin.AdminURL, sale.goods), bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+admin.Token)
	if got := cmdtest.Do(r); got.Status != http.StatusOK {
		t.Errorf("%+v is answered with %d %s", to, got.Status, got.Text)
		return
	}
	changed := time.Now()
	if !l.sellsAs(t, through, sale, to) {
		t.Errorf("the replica that was asked does not sell by %+v at once", to)
	}
	var following sync.WaitGroup
	for replica := range l.cluster.Replicas {
		following.Go(func() { l.follows(t, replica, sale, to, changed) })
	}
	following.Wait()
}

// follows fails where a replica rejects the mode of an item too long after the change.
func (l testLab) follows(t *testing.T, replica int, sale *rollingSale, to chosen, changed time.Time) {
	t.Helper()
	for {
		after := time.Since(changed)
		if l.sellsAs(t, replica, sale, to) {
			t.Logf("replica %d sells by %+v %s after the change", replica+1, to, after.Round(time.Millisecond))
			return
		}
		if after > seenWithin {
			t.Errorf("replica %d does not sell by %+v %s after the change", replica+1, to, after)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sellsAs buys from a replica in the mode that an item is to have: another replica's
// mode is rejected. Where that sells, the sale counts like every other.
func (l testLab) sellsAs(t *testing.T, replica int, sale *rollingSale, as chosen) bool {
	t.Helper()
	query := fmt.Sprintf("goods_id=%d&strategy=%s&group=%t&fence=%t", sale.goods, as.Strategy, as.Group, as.Fence)
	r := cmdtest.Ask(t, http.MethodPost, l.cluster.ClientOf(replica).URL+"/deduct?"+query)
	key := rand.Text()
	r.Header.Set("Idempotency-Key", key)
	got := cmdtest.Do(r)
	var order struct {
		ID string `json:"order_id"`
	}
	if got.Status == http.StatusOK && json.Unmarshal([]byte(got.Text), &order) == nil {
		sale.mu.Lock()
		defer sale.mu.Unlock()
		sale.reported[key] = order.ID
	}
	return got.Kind != "choice-refused"
}

func (s *rollingSale) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reported) > 0
}

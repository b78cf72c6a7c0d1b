package service_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Each replica writes to a node of its own. Every strategy that is safe sells what there is, and those
// whose lock is a node's own are rejected. One lock stands for the others, which TestProve… has.
func TestTheNodesOfAGaleraClusterSellWhatThereIs(t *testing.T) {
	sellOnEachNode(t, "Galera", lab.Galera(t), standsForOthers)
}

func TestThePrimariesOfAGroupSellWhatThereIs(t *testing.T) {
	sellOnEachNode(t, "Group Replication", lab.Group(t), standsForOthers)
}

func sellOnEachNode(t *testing.T, kind string, nodes []*servers.Database, picked func(name string) bool) {
	t.Helper()
	s := openOn(t, 0, nodes...)
	for i, entry := range strategy.Registry() {
		if !entry.Guarantees.Safe(false) || !entry.OneServer && !picked(entry.Name) {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			if entry.OneServer {
				s.rejectsOnNodes(t, entry.Name, kind)
				return
			}
			for j, name := range []string{entry.Name, entry.Name + grouped} {
				s.sellsOutOnAllNodes(t, name, int64(2*i+j+1))
			}
		})
	}
}

// rejectsOnNodes fails where a replica sells by a strategy, or does not say why not.
func (s shop) rejectsOnNodes(t *testing.T, name, kind string) {
	t.Helper()
	for i, replica := range s.replicas {
		should.Reject(replica.In(service.Mode{Strategy: name}))(t, service.ErrStrategyRejected, "replica … answers with", i+1)
		for _, d := range replica.Describe(t.Context()) {
			if d.Name == name && (d.Available || !strings.Contains(d.Note, kind)) {
				t.Errorf("replica %d describes it as available (%v), with the note %q", i+1, d.Available, d.Note)
			}
		}
	}
}

// sellsOutOnAllNodes sells an item through all replicas at once until each of them rejects it.
func (s shop) sellsOutOnAllNodes(t *testing.T, name string, goods int64) {
	t.Helper()
	const units = 60
	s.create(t, goods, units)
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for i := range 4 * len(s.replicas) {
		seller := s.strategy(t, i%len(s.replicas), name)
		buyers.Go(func() {
			purchase := stock.Purchase{Quantity: 1}
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				outcome, err := seller.Deduct(t.Context(), goods, purchase)
				switch {
				case errors.Is(err, stock.ErrBusy), errors.Is(err, stock.ErrUnknownGoods): // not there yet on this node
				case strings.HasPrefix(name, "sql-procedure") && errors.Is(err, stock.ErrUnknownOutcome): // Galera may garble an answer
					purchase = keyed(outcome.Order.RequestID, 1)
				case err != nil:
					t.Errorf("%s: %v", name, err)
					return
				case outcome.Rejected != nil:
					return
				default:
					sold.Add(1)
					purchase = stock.Purchase{Quantity: 1}
				}
			}
			t.Errorf("%s: a buyer is neither sold to nor rejected in a minute", name)
		})
	}
	buyers.Wait()
	var audit service.Audit
	var err error
	if !labtest.Eventually(30*time.Second, func() bool {
		audit, err = s.inventory.AuditInFull(t.Context(), goods)
		return err == nil && audit.Clean && audit.Stock == 0 && audit.Sold == units
	}) || sold.Load() != units {
		t.Errorf("%s: of %d units the buyers got %d, and the audit is %+v (%v)", name, units, sold.Load(), audit, err)
	}
}

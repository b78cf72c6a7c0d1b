package service_test

import (
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
)

// Each replica writes to a node of its own. Every strategy that is safe sells what there is, and those
// whose lock is a node's own are rejected. One lock stands for the others, which TestProve… has.
func TestTheNodesOfAGaleraClusterSellWhatThereIs(t *testing.T) {
	sellOnEachNode(t, "Galera", lab.Galera(t), ofOneServer, standsForOthers)
}

func TestThePrimariesOfAGroupSellWhatThereIs(t *testing.T) {
	sellOnEachNode(t, "Group Replication", lab.Group(t), ofOneServer, standsForOthers)
}

func ofOneServer(e strategy.Entry) bool { return e.OneServer }

// sellOnEachNode sells items, which are numbered from 1000 on, by the strategies that are picked, and expects of the others
// that are safe and absent that they are rejected.
func sellOnEachNode(t *testing.T, kind string, nodes []*servers.Database, absent func(strategy.Entry) bool, picked func(name string) bool) {
	t.Helper()
	s := openOn(t, 0, nodes...)
	for i, entry := range strategy.Registry() {
		if !entry.Guarantees.Safe(false) || !absent(entry) && !picked(entry.Name) {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			if absent(entry) {
				s.rejectsOnNodes(t, entry.Name, kind)
				return
			}
			for j, name := range []string{entry.Name, entry.Name + grouped} {
				s.sellsOut(t, int64(1000+2*i+j), name)
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

// sellsOut sells an item through all replicas at once, by strategies in turns, until each of them rejects it.
func (s shop) sellsOut(t *testing.T, goods int64, names ...string) {
	t.Helper()
	const units = 60
	s.create(t, goods, units)
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for i := range 4 * len(s.replicas) {
		buyers.Go(func() { sold.Add(s.buysOut(t, i%len(s.replicas), names[i%len(names)], goods)) })
	}
	buyers.Wait()
	if s.nodes == 1 {
		should.Be(t, sold.Load(), units, names[0], "and", names[len(names)-1], "sold")
		s.settles(t, goods, units)
		return
	}
	var audit service.Audit
	var err error
	if !labtest.Eventually(30*time.Second, func() bool {
		audit, err = s.inventory.AuditInFull(t.Context(), goods)
		return err == nil && audit.Clean && audit.Stock == 0 && audit.Sold == units
	}) || sold.Load() != units {
		t.Errorf("%v: of %d units the buyers got %d, and the audit is %+v (%v)", names, units, sold.Load(), audit, err)
	}
}

//go:build prove

package service_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Three replicas write to one node through HAProxy, by the configuration of deploy/haproxy. The node is
// killed, and paused, in the middle of a sale; it becomes the one that is written to when it is back. The
// ledger has what the buyers got, once.
func TestProveASaleSurvivesAFailoverBehindHAProxy(t *testing.T) {
	nodes := lab.OwnGalera(t)
	surviveFailovers(t, startHAProxy(t, nodes, "galera"), nodes, sizeOfGalera, func() int { return 0 })
}

// The same with a group of one primary, which another member becomes each time.
func TestProveASaleSurvivesAFailoverOfThePrimary(t *testing.T) {
	nodes := lab.OwnPrimary(t)
	surviveFailovers(t, startHAProxy(t, nodes, "group"), nodes, sizeOfGroup, func() int { return primary(t, nodes) })
}

// surviveFailovers has a fault befall the node that is written to, six times for each strategy.
func surviveFailovers(t *testing.T, before *servers.Database, nodes []*servers.Database, size string, writing func() int) {
	t.Helper()
	faults := []fault{killNode, pauseNode}
	s := openOn(t, 0, before, before, before)
	for i, name := range []string{"sql-conditional", "sql-conditional grouped"} {
		t.Run(name, func(t *testing.T) {
			const units = 1_000_000
			goods, told := int64(i+1), &answers{sold: make(map[string]int64)}
			s.create(t, goods, units)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var buyers sync.WaitGroup
			for range 12 {
				buyers.Go(func() { s.buyUntil(ctx, t, name, goods, told) })
			}
			for round := range 6 {
				time.Sleep(time.Second)
				told.begin()
				number := writing()
				faults[round%len(faults)](t, nodes, number)
				awaitWhole(t, nodes, nodes[number], size)
				time.Sleep(4 * time.Second) // until it is written to again
				t.Logf("round %d: %s without a sale", round+1, told.begin().Round(time.Millisecond))
			}
			stop()
			buyers.Wait()
			s.wantTold(t, goods, units, told)
		})
	}
}

// primary is the number of the member that takes writes.
func primary(t *testing.T, nodes []*servers.Database) (number int) {
	t.Helper()
	const isPrimary = `SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid AND member_role = 'PRIMARY'`
	if !labtest.Eventually(20*time.Second, func() bool {
		number = slices.IndexFunc(nodes, func(node *servers.Database) bool { return seen(t, node, isPrimary) == 1 })
		return number >= 0
	}) {
		t.Fatal("no member is the primary")
	}
	return number
}

// startHAProxy starts HAProxy before the nodes of a kind of cluster, and returns the database as it is reached through it.
func startHAProxy(t *testing.T, nodes []*servers.Database, kind string) *servers.Database {
	t.Helper()
	program, err := servers.Find("haproxy")
	labtest.Need(t, "haproxy", err == nil, "apt-get install haproxy brings it")
	d := *nodes[0]
	configure := func(folder string, port int) (args, env []string, err error) {
		c := parsed(t, d.DSN)
		c.Addr = servers.Loopback(port)
		d.DSN = c.FormatDSN()
		return []string{"-db", "-f", writeHAProxy(t, folder, c.Addr, nodes, kind)}, nil, nil
	}
	server, err := servers.Launch(t.Context(), lab.Supervisor(), servers.Spec{
		Name: "haproxy", Program: program, Configure: configure,
		Ready: func(ctx context.Context, _ int) error {
			store, err := d.Open(ctx, "lab", 1)
			if err != nil {
				return err
			}
			return store.Close()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(4 * time.Second) // until then HAProxy takes each node for one that may be written to
	return &d
}

// writeHAProxy writes what deploy/haproxy has, with the addresses and the paths of this test.
func writeHAProxy(t *testing.T, folder, address string, nodes []*servers.Database, kind string) string {
	t.Helper()
	words := make([]string, 0, 4+2*len(nodes))
	words = append(words, "/etc/haproxy", folder, "127.0.0.1:3307", address)
	for i, node := range nodes {
		words = append(words, fmt.Sprintf("10.0.0.%d:3306", i+1), parsed(t, node.DSN).Addr)
	}
	replacer := strings.NewReplacer(words...)
	for name, mode := range map[string]os.FileMode{kind + ".cfg": 0o600, kind + "-check": 0o700} {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "haproxy", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(replacer.Replace(string(content))), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	user := fmt.Sprintf("[client]\nuser=%s\npassword=%s\n", parsed(t, nodes[0].DSN).User, nodes[0].Password)
	if err := os.WriteFile(filepath.Join(folder, kind+"-check.cnf"), []byte(user), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, kind+".cfg")
}

func parsed(t *testing.T, dsn string) *mysql.Config {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

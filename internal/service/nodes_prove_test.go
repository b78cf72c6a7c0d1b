//go:build prove

package service_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// How fast one hot item is sold where three replicas write to one node, and where each writes to a node of
// its own. It logs the rows of the table in docs/distributed-sql.md.
func TestProveAHotRowOnOneNodeAndOnThree(t *testing.T) {
	for _, cluster := range []struct {
		name  string
		start func(*testing.T) []*servers.Database
	}{{"Galera", lab.Galera}, {"Group Replication", lab.Group}} {
		t.Run(cluster.name, func(t *testing.T) {
			nodes := cluster.start(t)
			one, three := openOn(t, 0, nodes[0], nodes[0], nodes[0]), openOn(t, 0, nodes...)
			for i, name := range []string{"sql-conditional", "sql-conditional grouped", "sql-bucket", "sql-bucket grouped", "sql-unit grouped"} {
				t.Log("|", cluster.name, "|", name, "|", compareNodes(t, one, three, name, int64(100*(i+1))), "|")
			}
		})
	}
}

// compareNodes returns the cells of a row: sales a second on one node and on three, and three to one.
func compareNodes(t *testing.T, one, three shop, name string, goods int64) string {
	t.Helper()
	const rounds = 3
	ofOne, ofThree, ratios := make([]float64, rounds), make([]float64, rounds), make([]float64, rounds)
	for i := range rounds {
		ofOne[i] = one.perSecond(t, name, goods+int64(2*i))
		ofThree[i] = three.perSecond(t, name, goods+int64(2*i)+1)
		ratios[i] = ofThree[i] / ofOne[i]
	}
	return fmt.Sprintf("%s | %s | %.2f (%.2f–%.2f)", humanize.Comma(int64(bench.Median(ofOne))), humanize.Comma(int64(bench.Median(ofThree))),
		bench.Median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// perSecond sells an item by 64 buyers for some seconds.
func (s shop) perSecond(t *testing.T, name string, goods int64) float64 {
	t.Helper()
	s.create(t, goods, 100_000)
	sold := s.sellsFor(t, name, goods, func() stock.Purchase { return stock.Purchase{Quantity: 1} })
	if !labtest.Eventually(30*time.Second, func() bool {
		audit, err := s.inventory.AuditInFull(t.Context(), goods)
		return err == nil && audit.Clean && audit.Sold >= sold
	}) {
		t.Errorf("%s: item %d is not consistent", name, goods)
	}
	return float64(sold) / saleLasts.Seconds()
}

const saleLasts = 3 * time.Second

// sellsFor is how much 64 buyers get.
func (s shop) sellsFor(t *testing.T, name string, goods int64, purchase func() stock.Purchase) int64 {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), saleLasts)
	defer end()
	var sold atomic.Int64
	var buyers sync.WaitGroup
	for i := range 64 {
		seller := s.strategy(t, i%len(s.replicas), name)
		buyers.Go(func() {
			for ctx.Err() == nil {
				// What is under way at the end is not counted.
				if outcome, err := seller.Deduct(context.WithoutCancel(ctx), goods, purchase()); err == nil && outcome.Rejected == nil && ctx.Err() == nil {
					sold.Add(1)
				}
			}
		})
	}
	buyers.Wait()
	return sold.Load()
}

// What a sale costs on Vitess, and without its look-up of keys, beside the same database alone. It logs the rows of the table in
// docs/distributed-sql.md.
func TestProveWhatASaleCostsOnVitess(t *testing.T) {
	v := labtest.Own(t, lab.Supervisor(), "vitess", servers.StartVitess, servers.VitessOptions{Shards: []string{"-80", "80-"}})
	below := must.Get(v.Below.Raw())(t)
	should.Close(t, below)
	must.Get(below.ExecContext(t.Context(), "CREATE DATABASE alone"))(t)
	alone := must.Get(v.Below.With(func(c *mysql.Config) { c.DBName = "alone" }))(t)
	sharded := openOn(t, 0, v.Database)
	openOn(t, 0, alone).logCosts(t, v.Below.Name, below)
	sharded.logCosts(t, "Vitess", below)
	schema := strings.ReplaceAll(string(must.Get(deploy.Vitess.ReadFile("vitess/shop.vschema.json"))(t)), `, {"column": "request_id", "name": "request"}`, "")
	must.Do(t, v.Control(t.Context(), "ApplyVSchema", "--vschema="+schema, "shop"))
	time.Sleep(2 * time.Second) // until the gate has it
	sharded.logCosts(t, "Vitess, no look-up", below)
}

// logCosts logs what a sale costs, as medians of three rounds: milliseconds of the processor in the database, in the
// tablets and in the gate, and the statements that the database gets, without what they use where nothing is sold.
func (s shop) logCosts(t *testing.T, where string, below *sql.DB) {
	t.Helper()
	idle := spent(t, below)
	time.Sleep(saleLasts)
	for i, now := range spent(t, below) {
		idle[i] = now - idle[i]
	}
	for kind, purchase := range map[string]func() stock.Purchase{
		"no key": func() stock.Purchase { return stock.Purchase{Quantity: 1} },
		"a key":  func() stock.Purchase { return keyed(rand.Text(), 1) },
	} {
		for _, name := range []string{"sql-conditional", "sql-conditional grouped"} {
			const rounds = 3
			var columns [4][]float64
			for range rounds {
				goods := mathrand.Int64N(1 << 40)
				s.create(t, goods, 1_000_000)
				before := spent(t, below)
				sold := s.sellsFor(t, name, goods, purchase)
				for i, now := range spent(t, below) {
					columns[i] = append(columns[i], (now-before[i]-idle[i])/float64(sold))
				}
			}
			row := fmt.Sprintf("| %s, %s | %s |", name, kind, where)
			for _, column := range columns {
				row += fmt.Sprintf(" %.2f |", bench.Median(column))
			}
			t.Log(row)
		}
	}
}

// spent are the columns of logCosts, of all sales until now.
func spent(t *testing.T, below *sql.DB) (columns [4]float64) {
	t.Helper()
	for name, used := range must.Get(lab.Supervisor().Used())(t) {
		if i, ok := map[string]int{"mariadbd": 0, "mysqld": 0, "vttablet": 1, "vtgate": 2}[name]; ok {
			columns[i] += 1000 * (used.User + used.System).Seconds()
		}
	}
	var variable string
	must.Do(t, below.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&variable, &columns[3]))
	return columns
}

func TestProveEveryOtherPairSells(t *testing.T) {
	isOther := func(first, second string) bool { return !isElsewhere(first, second) }
	eachPair(t, lab.EachServer, isOther, sellsAllThatIsLeft)
	eachPair(t, lab.EachServer, isOther, sellsAtTheSameTime)
}

// The pairs of the short run, on two shards.
func TestProveEveryPairSellsOnVitess(t *testing.T) {
	v := lab.Vitess(t)
	onShards := func(t *testing.T, test func(*testing.T, *servers.Database)) { test(t, v.Database) }
	const absent = "sql-procedure" // no procedure can be called there
	picked := func(first, second string) bool {
		return isElsewhere(first, second) && first != absent && second != absent
	}
	eachPair(t, onShards, picked, sellsAllThatIsLeft)
	eachPair(t, onShards, func(first, second string) bool { return first <= second && picked(first, second) }, sellsAtTheSameTime)
}

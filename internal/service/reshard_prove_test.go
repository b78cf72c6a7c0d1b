//go:build prove

package service_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// A shop that has sold on one server is copied to shards, as deploy/vitess says: it still knows its keys and reservations.
// Then Reshard divides one of them in the middle of a sale of a hundred items.
func TestProveAShopMovesToTheShardsOfVitess(t *testing.T) {
	v := labtest.Own(t, lab.Supervisor(), "vitess", servers.StartVitess, servers.VitessOptions{Shards: fourShards()})
	before := openOn(t, 0, v.Below, v.Below)
	const first, units, sold = 101, 100, 20
	left := make(map[int64]int64)
	for item := range int64(10) {
		before.create(t, first+item, units)
		before.sells(t, "sql-conditional", first+item, slices.Repeat([]int64{1}, sold)...)
		left[first+item] = units - sold
	}
	known := keyed("known", 1)
	order := must.Get(before.strategy(t, 0, "sql-conditional").Deduct(t.Context(), first, known))(t).Order
	before.reservations(t, v.Below)
	held := before.holds(t, "sql-conditional", first, 1, time.Hour)
	copyTo(t, v)
	hasLookUps(t, v)

	s := openOn(t, 0, v.Database)
	again := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), first, known))(t)
	should.Be(t, again.Replayed && again.Order.ID == order.ID, true, "a key of before gets its order")
	all, _ := s.reservations(t, v.Database)
	must.Do(t, errOf(all[0].Confirm(t.Context(), held[0], "paid")))
	left[first] -= 2
	s.leaves(t, left)

	sale, end := startShardSale(t, v)
	must.Do(t, v.AddShards(t.Context(), lab.Supervisor(), "c0-e0", "e0-"))
	for _, step := range [][]string{
		{"create", "--source-shards=c0-", "--target-shards=c0-e0,e0-", "--tablet-types=PRIMARY", "--cells=test"}, {"SwitchTraffic"}, {"complete"},
	} {
		sale.befall(t, "c0-", step[0], func() {
			var err error
			labtest.Eventually(time.Minute, func() bool { // until all rows are copied, SwitchTraffic does nothing
				err = v.Control(t.Context(), append([]string{"Reshard", "--target-keyspace=shop", "--workflow=grow"}, step...)...)
				return err == nil
			})
			must.Do(t, err)
		})
	}
	end()
}

// hasLookUps reads from the VSchema what is unique on each shard alone.
func hasLookUps(t *testing.T, v *servers.Vitess) {
	t.Helper()
	store := labtest.Open(t, v.Database, "checker")
	schema := string(must.Get(deploy.Vitess.ReadFile("vitess/shop.vschema.json"))(t))
	for _, c := range [][2]string{{"tb_stock_ledger.request_id", strings.ReplaceAll(schema, "consistent_lookup_unique", "lookup_unique")}, {"", schema}} {
		must.Do(t, v.Control(t.Context(), "ApplyVSchema", "--vschema="+c[1], "shop"))
		labtest.Await(t, "what is unique on each shard alone: "+c[0], 10*time.Second, func() bool {
			return must.Get(store.UniqueOnAShard(t.Context()))(t) == c[0]
		})
	}
}

// copyTo copies a shop from the database below to the shards, through the gate.
func copyTo(t *testing.T, v *servers.Vitess) {
	t.Helper()
	from, to := must.Get(mysql.ParseDSN(v.Below.DSN))(t), must.Get(mysql.ParseDSN(v.DSN))(t)
	options := func(c *mysql.Config) string {
		host, port, _ := strings.Cut(c.Addr, ":")
		return " --host=" + host + " --port=" + port + " --user=" + c.User + " "
	}
	dump := "mysqldump" + options(from) + "--no-create-info --complete-insert --compact "
	load := " | grep -v '^/\\*' | mysql" + options(to)
	script := "set -e\n" +
		dump + from.DBName + " tb_goods_stock tb_goods_strategy tb_stock_place tb_stock_user tb_stock_ledger tb_ledger_archive tb_reservation tb_reservation_archive" + load + "shop\n" +
		dump + "--replace " + from.DBName + " tb_ledger_settled tb_strategy_off lock_token" + load + "shop_global\n" +
		"for table in goods_stock stock_ledger; do\n" +
		"  next=$(mysql" + options(from) + from.DBName + " -Ne \"SELECT COALESCE(MAX(id), 0) + 1 FROM tb_$table\")\n" +
		"  mysql" + options(to) + "shop_global -e \"UPDATE seq_$table SET next_id = $next\"\n" +
		"done"
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	command.Env = append(os.Environ(), "MYSQL_PWD="+v.Below.Password)
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("copy: %v\n%s", err, said)
	}
}

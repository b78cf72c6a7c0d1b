package experiments

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/pkg/client"
)

// basketSold counts the items of one basket that the ledgers have as sold.
const basketSold = "basket_items_sold"

func shards() []Part {
	byHand := Stage{Needs: []Need{MySQL}, Replicas: 2, Servers: twoDatabases}
	onVitess := Stage{Needs: []Need{MySQL}, Replicas: 1, Servers: vitess}
	half := checker.All(checker.AtLeast(basketSold, 1), checker.AtMost(basketSold, 1))
	none := checker.All(checker.NothingShared(), checker.AtMost(basketSold, 0), checker.Clean())
	return []Part{
		newPart("numbers", byHand, checker.All(checker.SharedNumbers(), checker.Clean()), func(x *Try) {
			p := x.byHand()
			p.sellBoth("", 20)
			p.audit()
		}),
		newPart("one-key", byHand, checker.All(checker.SharedKeys(), checker.Clean()), func(x *Try) {
			p := x.byHand()
			p.sellBoth("checkout", 1)
			p.audit()
		}),
		newPart("half-basket", byHand, half, func(x *Try) {
			p := x.byHand()
			p.commitInTurn()
			x.Figure(basketSold, float64(p.audit()))
		}),
		asRemedy(newPart("vitess", onVitess, none, func(x *Try) {
			p := x.apart()
			p.sellBoth("", 20)
			p.sellBoth("checkout", 1)
			before := p.audit()
			p.buyBasket()
			x.Figure(basketSold, float64(p.audit()-before))
		})),
	}
}

// twoDatabases are shards by hand: each of two replicas writes to a database of its own.
func twoDatabases(x *Try) (env []string) {
	server := x.connection()
	x.Own = make(map[int][]string, 2)
	for i := range 2 {
		shard := x.shard(i)
		name := shardName(x.Item, i)
		flow.Get(server.ExecContext(x, "CREATE DATABASE "+name))(x.Flow)
		x.Later(func() error {
			_, err := server.ExecContext(context.WithoutCancel(x), "DROP DATABASE "+name)
			return err
		})
		x.Own[i+1] = shard.Env()
	}
	return nil
}

func shardName(item int64, i int) string { return fmt.Sprintf("lab_shard_%d_%d", item, i+1) }

// shard is one of the two databases, from 0.
func (x *Try) shard(i int) *servers.Database { return x.within(shardName(x.Item, i)) }

// within is another database of the same server.
func (x *Try) within(name string) *servers.Database {
	return flow.Get(x.Backends.Database.With(func(c *mysql.Config) { c.DBName = name }))(x.Flow)
}

// vitess gives a stage a shop on two shards of Vitess.
func vitess(x *Try) (env []string) {
	v := flow.Get(servers.StartVitess(x, x.Supervisor, servers.VitessOptions{Shards: []string{"-80", "80-"}}))(x.Flow)
	x.closeLater(v)
	x.Backends.Database = v.Database
	return v.Env()
}

// pair is two items on different shards, the first of them that of the try.
type pair struct {
	*Try

	items    [2]int64
	replicas [2]int // which sell them, from 0
}

// byHand is a pair on two databases: the client knows which of them has an item.
func (x *Try) byHand() pair {
	p := pair{x, [2]int64{x.Item, x.Item + 1<<40}, [2]int{0, 1}}
	p.create(0)
	p.create(1)
	return p
}

// apart is a pair on Vitess, which chooses the shard of an item.
func (x *Try) apart() pair {
	p := pair{x, [2]int64{x.Item, x.Item + 1<<40}, [2]int{}}
	p.create(0)
	shard := flow.Get(x.within("shop:-80").Raw())(x.Flow)
	x.Later(shard.Close)
	for here := 0; here != 1; {
		p.items[1]++
		p.create(1)
		x.Must(shard.QueryRowContext(x, `SELECT COUNT(*) FROM tb_goods_stock WHERE goods_id IN (?, ?)`, p.items[0], p.items[1]).Scan(&here))
	}
	return p
}

func (p pair) client(i int) shop.Client { return p.Cluster.ClientOf(p.replicas[i]) }

func (p pair) create(i int) { p.Must(p.client(i).CreateGoods(p, p.items[i], 100)) }

// sellBoth sells so many units of each, all of them under the key, if there is one.
func (p pair) sellBoth(key string, requests int) {
	for i, item := range p.items {
		p.sell(Sale{Strategy: "sql-conditional", Item: item, Replica: p.replicas[i] + 1, FirstClient: i, Requests: requests, Key: key})
	}
}

// audit writes both audits into the history, and returns how many orders there are.
func (p pair) audit() (orders int64) {
	for i, item := range p.items {
		orders += p.auditBy(p.client(i), item).Orders
	}
	return orders
}

// commitInTurn sells a basket of both as a program without Vitess does, and as Vitess does if its transaction_mode is MULTI:
// in a transaction on each shard, committed one after the other. The connection to the second one ends in between.
func (p pair) commitInTurn() {
	var open [2]*sql.Tx
	var connection int64
	for i, item := range p.items {
		pool, _, err := p.shard(i).Pool(1, patience)
		p.Must(err)
		p.Later(pool.Close)
		open[i], err = pool.BeginTx(p, nil)
		p.Must(err)
		for _, statement := range []string{
			`UPDATE tb_goods_stock SET stock = stock - 1, version = version + 1 WHERE goods_id = ? AND stock >= 1`,
			`INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at)
				VALUES (?, 'deduct', 1, 'basket', 'sql-conditional', 'checkout', UTC_TIMESTAMP(6))`,
		} {
			flow.Get(open[i].ExecContext(p, statement, item))(p.Flow)
		}
		p.Must(open[i].QueryRowContext(p, `SELECT CONNECTION_ID()`).Scan(&connection))
	}
	p.Must(open[0].Commit())
	p.Mark("checkout", "has committed on the first shard")
	flow.Get(p.connection().ExecContext(p, fmt.Sprintf("KILL %d", connection)))(p.Flow)
	p.Mark("second shard", "ends the connection before its commit")
	if open[1].Commit() == nil {
		p.Must(errors.New("a transaction was committed on a connection that was killed"))
	}
}

// buyBasket orders one of each. That the items are apart is an answer.
func (p pair) buyBasket() {
	lines := []client.Line{{GoodsID: p.items[0]}, {GoodsID: p.items[1]}}
	_, err := p.Client().Shop().Buy(p, client.Basket{Strategy: "sql-conditional", Lines: lines})
	if errors.Is(err, client.ErrItemsApart) {
		p.Mark("basket", "rejected: its items are on different shards")
		return
	}
	p.Must(err)
}

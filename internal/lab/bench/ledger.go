package bench

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// The targets of a large ledger.
const (
	asFastAsEmpty  = 0.95
	asCheapAsEmpty = 1.05
	auditWithin    = 50 // milliseconds
)

// fillLedger fills the ledger, and starts a replica whose ledger is empty, in a database of the same server.
func (s *stage) fillLedger(x *flow.Flow) {
	const beside = "stockd_empty"
	if s.bare == nil {
		x.Must(errNeedsMySQL)
	}
	flow.Get(s.bare.ExecContext(x, `CREATE DATABASE `+beside))(x)
	empty := flow.Get(s.shop.Servers.Database.With(func(c *mysql.Config) { c.DBName = beside }))(x)
	store := flow.Get(s.shop.Servers.Database.Open(x, "lab", 1))(x)
	defer store.Close() //nolint:errcheck // what it wrote is committed
	flow.Get(store.MigrateUp(x))(x)
	fill(x, s.bare, s.options.Ledger, s.options.Progress.Say)
	s.updateTotals(x, store)
	s.items.Store(goodsOfLedger) // each sale has an item of its own
	s.empty = &stage{bench: s.bench, replicas: 1}
	s.empty.served = s.start(x, shop.Replicas{Count: 1, Servers: empty.Env()})
}

// updateTotals brings the running totals up to date, as a replica does in the background.
func (s *stage) updateTotals(x *flow.Flow, store *repo.Store) {
	began := time.Now()
	x.Must(store.SettleAll(x))
	for flow.Get(store.Unsettled(x))(x) > 0 {
		x.Must(pause.For(x, 100*time.Millisecond))
		x.Must(store.SettleAll(x))
	}
	s.options.Progress.Say(fmt.Sprintf("running totals are up to date after %s", time.Since(began).Round(time.Second)))
}

// ofLedger measures a replica on a ledger with many rows against one on a ledger with none, in turns; and audits.
func (s *stage) ofLedger() (suite Suite) {
	for _, how := range []Setting{{}, {Group: true}, {Group: true, Kind: keyed}} {
		how.Strategy, how.Clients, how.Replicas = conditional, usual, 1
		names := [2]string{how.String() + ", empty ledger", how.String() + ", large ledger"}
		for i, on := range []*stage{s.empty, s} {
			suite.Subjects = append(suite.Subjects, Subject{Name: names[i], Unit: "/s", Measure: on.sold(how).Measure})
		}
		r := Ratio{Name: "large / empty ledger, " + how.String(), Of: names[1], By: names[0], AtLeast: asFastAsEmpty}
		cost := Ratio{Name: "processor time, " + r.Name, Of: r.Of, By: r.By, Cost: true, Below: asCheapAsEmpty}
		suite.Ratios = append(suite.Ratios, r, cost)
	}
	anyGoods := func() int64 { return 2 + rand.Int64N(goodsOfLedger-1) }
	hot := func() int64 { return hotGoods }
	suite.Subjects = append(suite.Subjects,
		s.audits("audit of any goods, p99", anyGoods, auditWithin, shop.Client.Audit, shop.Client.AuditInFull),
		s.audits("audit of the item with a tenth of the rows, p99", hot, auditWithin, shop.Client.Audit, shop.Client.AuditInFull),
		s.audits("full audit of any goods, p99", anyGoods, 0, shop.Client.AuditInFull, shop.Client.Audit),
		s.audits("full audit of the item with a tenth of the rows, p99", hot, 0, shop.Client.AuditInFull, shop.Client.Audit),
		Subject{Name: "order of a request id, p99", Unit: " ms", Measure: measuring(func(x *flow.Flow, each time.Duration) Sample {
			return repeat(x, each, func() {
				x.Must(s.served.Client().FindOrder(x, fmt.Sprintf("%s%012d", filledKeys, rand.Int64N(s.options.Ledger))))
			})
		})},
	)
	return suite
}

// auditing is one way to audit an item.
type auditing func(shop.Client, context.Context, int64) (stock.Audit, error)

// audits times audits of one kind. The last one is compared with one of the other kind afterwards.
func (s *stage) audits(name string, goods func() int64, atMost float64, ask, other auditing) Subject {
	return Subject{Name: name, Unit: " ms", AtMost: atMost, Measure: measuring(func(x *flow.Flow, each time.Duration) Sample {
		c := s.served.Client()
		var last stock.Audit
		sample := repeat(x, each, func() {
			if last = flow.Get(ask(c, x, goods()))(x); !last.Clean {
				x.Must(fmt.Errorf("the audit of item %d is not consistent: %+v", last.GoodsID, last))
			}
		})
		if beside := flow.Get(other(c, x, last.GoodsID))(x); beside != last {
			x.Must(fmt.Errorf("the audits of item %d by running totals and by the ledger differ: %+v and %+v", last.GoodsID, last, beside))
		}
		return sample
	})}
}

// repeat asks again and again; the value is the p99.
func repeat(x *flow.Flow, each time.Duration, ask func()) Sample {
	took, _ := loop(x, each, 0, []turn{func(*flow.Flow) time.Duration {
		began := time.Now()
		ask()
		return time.Since(began)
	}})
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	p99 := ms(took[len(took)*99/100])
	return Sample{Value: p99, P50: ms(took[len(took)/2]), P99: p99}
}

// A filled ledger: every tenth of its rows is of one item, and the others are
// spread evenly.
const (
	goodsOfLedger = 10_000
	hotGoods      = 1
	hotShare      = 10

	batchBits = 17 // rows of one statement, as a power of two
	unitsEach = 1_000_000_000
)

// The statements count with a table of numbers: not every server that speaks
// MySQL's protocol has a sequence.
const (
	createNumbers = `CREATE TABLE lab_number (n BIGINT NOT NULL PRIMARY KEY)`
	firstNumber   = `INSERT INTO lab_number VALUES (0)`
	doubleNumbers = `INSERT INTO lab_number SELECT n + ? FROM lab_number`
	dropNumbers   = `DROP TABLE lab_number`

	fillRestocks = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, strategy, replica, fence, remaining, created_at)
		SELECT n + 1, 'restock', ?, CONCAT('00000000-0000-7000-8000-r', LPAD(n, 11, '0')), '', 'lab', 0, ?, UTC_TIMESTAMP(6)
		FROM lab_number WHERE n < ? ORDER BY n`

	// filledKeys begins the request ids of the sales, whose numbers from 0 have twelve digits.
	filledKeys = "00000000-0000-7000-8000-"

	// Row by row, item by item: in any other order the writes to the index of the items
	// would be random, and the filling take an hour. The request ids look like the
	// UUIDs of an earlier time, so that new ones come after them.
	fillSales = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, strategy, replica, fence, remaining, created_at)
		SELECT CASE WHEN ? + n < ? THEN 1 ELSE 2 + (? + n - ?) DIV ? END, 'deduct', 1,
			CONCAT('` + filledKeys + `', LPAD(? + n, 12, '0')), 'sql-conditional', 'lab', 0, 1, UTC_TIMESTAMP(6)
		FROM lab_number WHERE n < ? ORDER BY n`

	fillGoods = `INSERT INTO tb_goods_stock (goods_id, stock)
		SELECT goods_id, SUM(CASE WHEN kind = 'restock' THEN quantity ELSE -quantity END)
		FROM tb_stock_ledger GROUP BY goods_id ORDER BY goods_id`
)

// fill writes so many sales into an empty ledger, at least one an item, and the
// items.
func fill(x *flow.Flow, db *sql.DB, rows int64, say func(words string)) {
	exec := func(statement string, args ...any) { flow.Get(db.ExecContext(x, statement, args...))(x) }
	exec(createNumbers)
	exec(firstNumber)
	for bit := range batchBits {
		exec(doubleNumbers, int64(1)<<bit)
	}
	exec(fillRestocks, unitsEach, unitsEach, goodsOfLedger)
	hot := rows / hotShare
	of := (rows - hot + goodsOfLedger - 2) / (goodsOfLedger - 1) // each other item
	began := time.Now()
	for done := int64(0); done < rows; {
		n := min(rows-done, 1<<batchBits)
		exec(fillSales, done, hot, done, hot, of, done, n)
		done += n
		say(fmt.Sprintf("filling the ledger: %s of %s rows, %s a second", comma(float64(done)), comma(float64(rows)),
			comma(float64(done)/time.Since(began).Seconds())))
	}
	exec(fillGoods)
	exec(dropNumbers)
}

package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

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
func (s *stage) fillLedger(ctx context.Context) error {
	const beside = "stockd_empty"
	if s.bare == nil {
		return errNeedsMySQL
	}
	if _, err := s.bare.ExecContext(ctx, `CREATE DATABASE `+beside); err != nil {
		return fmt.Errorf("create an empty database: %w", err)
	}
	empty, err := s.shop.Servers.Database.With(func(c *mysql.Config) { c.DBName = beside })
	if err != nil {
		return err
	}
	store, err := s.shop.Servers.Database.Open(ctx, "lab", 1)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // what it wrote is committed
	if _, err := store.MigrateUp(ctx); err != nil {
		return err
	}
	if err := fill(ctx, s.bare, s.options.Ledger, s.options.Progress.Say); err != nil {
		return fmt.Errorf("fill ledger: %w", err)
	}
	if err := s.updateTotals(ctx, store); err != nil {
		return err
	}
	s.items.Store(goodsOfLedger) // each sale has an item of its own
	s.empty = &stage{bench: s.bench, replicas: 1}
	s.empty.served, err = s.start(ctx, shop.Replicas{Count: 1, Servers: empty.Env()})
	return err
}

// updateTotals brings the running totals up to date, as a replica does in the background.
func (s *stage) updateTotals(ctx context.Context, store *repo.Store) error {
	began := time.Now()
	for {
		if err := store.SettleAll(ctx); err != nil {
			return err
		}
		behind, err := store.Unsettled(ctx)
		if err != nil {
			return err
		}
		if behind == 0 {
			s.options.Progress.Say(fmt.Sprintf("running totals are up to date after %s", time.Since(began).Round(time.Second)))
			return nil
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
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
		Subject{Name: "order of a request id, p99", Unit: " ms", Measure: func(ctx context.Context, each time.Duration) (Sample, error) {
			return repeat(ctx, each, func() error {
				return s.served.Client().FindOrder(ctx, fmt.Sprintf("%s%012d", filledKeys, rand.Int64N(s.options.Ledger)))
			})
		}},
	)
	return suite
}

// auditing is one way to audit an item.
type auditing func(shop.Client, context.Context, int64) (stock.Audit, error)

// audits times audits of one kind. The last one is compared with one of the other kind afterwards.
func (s *stage) audits(name string, goods func() int64, atMost float64, ask, other auditing) Subject {
	return Subject{Name: name, Unit: " ms", AtMost: atMost, Measure: func(ctx context.Context, each time.Duration) (Sample, error) {
		c := s.served.Client()
		var last stock.Audit
		sample, err := repeat(ctx, each, func() (err error) {
			if last, err = ask(c, ctx, goods()); err == nil && !last.Clean {
				err = fmt.Errorf("the audit of item %d is not consistent: %+v", last.GoodsID, last)
			}
			return err
		})
		if err != nil {
			return Sample{}, err
		}
		beside, err := other(c, ctx, last.GoodsID)
		if err == nil && beside != last {
			err = fmt.Errorf("the audits of item %d by running totals and by the ledger differ: %+v and %+v", last.GoodsID, last, beside)
		}
		return sample, err
	}}
}

// repeat asks again and again; the value is the p99.
func repeat(ctx context.Context, each time.Duration, ask func() error) (Sample, error) {
	var took []float64
	for end := time.Now().Add(each); time.Now().Before(end) || len(took) == 0; {
		began := time.Now()
		if err := ask(); err != nil {
			return Sample{}, err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
		if ctx.Err() != nil {
			return Sample{}, context.Cause(ctx)
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	return Sample{Value: p99, P50: took[len(took)/2], P99: p99}, nil
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
func fill(ctx context.Context, db *sql.DB, rows int64, say func(words string)) error {
	exec := func(statement string, args ...any) (err error) {
		_, err = db.ExecContext(ctx, statement, args...)
		return err
	}
	if err := errors.Join(exec(createNumbers), exec(firstNumber)); err != nil {
		return err
	}
	for bit := range batchBits {
		if err := exec(doubleNumbers, int64(1)<<bit); err != nil {
			return err
		}
	}
	if err := exec(fillRestocks, unitsEach, unitsEach, goodsOfLedger); err != nil {
		return err
	}
	hot := rows / hotShare
	of := (rows - hot + goodsOfLedger - 2) / (goodsOfLedger - 1) // each other item
	began := time.Now()
	for done := int64(0); done < rows; {
		n := min(rows-done, 1<<batchBits)
		if err := exec(fillSales, done, hot, done, hot, of, done, n); err != nil {
			return err
		}
		done += n
		say(fmt.Sprintf("filling the ledger: %s of %s rows, %s a second", comma(float64(done)), comma(float64(rows)),
			comma(float64(done)/time.Since(began).Seconds())))
	}
	if err := exec(fillGoods); err != nil {
		return err
	}
	return exec(dropNumbers)
}

package repo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// A procedure of the schema sells a whole batch in one call, its commit included; the
// migration that creates it says how. No commit is sent that a deadline could hold back: the
// procedure itself rolls back what has taken too long, by the clock of the server.

const callSell = `CALL stockd_sell(?, ?, ?, ?, ?, ?, ?, ?)`

// SellByProcedure sells a batch of an item in one round trip, on MySQL and MariaDB. outcomes[i]
// answers batch[i].
//
// stock.ErrUnknownOutcome: the call was sent and not answered, and may have sold until the
// deadline of its transaction. Every other error means that nothing was sold.
func (s *Store) SellByProcedure(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	for try := 1; ; try++ {
		outcomes, err = s.sellOnce(ctx, Sale{GoodsID: goodsID, Batch: batch})
		if again, err := s.awaitRetry(ctx, err, try); !again {
			return outcomes, err
		}
	}
}

func (s *Store) sellOnce(ctx context.Context, sale Sale) ([]stock.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.pool.TxTimeout)
	defer cancel()
	orders, now := s.ordersOfSale(sale), acceptedNow()
	purchases := make([][3]any, len(orders))
	for i := range orders {
		orders[i].CreatedAt = now
		purchases[i] = [3]any{orders[i].RequestID, orders[i].Quantity, orders[i].UserID}
	}
	document, err := json.Marshal(purchases)
	if err != nil {
		return nil, fmt.Errorf("write the batch: %w", err)
	}
	keyed := slices.ContainsFunc(sale.Batch, func(p stock.Purchase) bool { return p.Keyed })
	answer, err := s.callSell(ctx, sale.GoodsID, now, keyed, stock.Units(sale.Batch), string(document))
	if err != nil {
		return nil, err
	}
	return answer.outcomes(sale.GoodsID, orders)
}

// callSell calls on a connection that is alive. The driver looks at one only when it is used;
// each that is dead leaves the pool.
func (s *Store) callSell(ctx context.Context, goodsID int64, now time.Time, rowFirst bool, units int64, batch string) (answer saleAnswer, err error) {
	for range s.pool.Stats().MaxOpenConnections + 1 {
		conn, failed := s.pool.Conn(ctx)
		if failed != nil {
			return answer, s.fault(ctx, "begin", failed)
		}
		deadline, _ := ctx.Deadline()
		answer, err = s.callSellOn(ctx, conn, goodsID, s.strategy, s.replica, now, time.Until(deadline).Microseconds(), rowFirst, units, batch)
		if !errors.Is(err, errNotCalled) {
			return answer, err
		}
	}
	return answer, backend.Failure(s.dialect.name, err)
}

// errNotCalled: the connection was closed before, and the driver wrote nothing.
var errNotCalled = errors.New("call the procedure: the connection is closed")

func (s *Store) callSellOn(ctx context.Context, conn *sql.Conn, args ...any) (answer saleAnswer, err error) {
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	if ctx.Err() != nil {
		return answer, s.fault(ctx, "call the procedure", context.Cause(ctx))
	}
	calling, end := backend.UncutCommit(ctx)
	defer end()
	err = conn.QueryRowContext(calling, callSell, args...).Scan(
		&answer.outcome, &answer.left, &answer.perUser, &answer.allocated, &answer.version, &answer.verdicts)
	if err == nil {
		return answer, nil
	}
	if err = s.callFault(ctx, conn, err); errors.Is(err, stock.ErrUnknownOutcome) {
		// A statement that was killed has left its transaction open.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return answer, err
}

// callFault distinguishes a call that was not sent, or that the database has rolled back, from one that
// was sent and not answered. It asks on the connection of the call: others may not be free.
func (s *Store) callFault(ctx context.Context, conn gorm.ConnPool, err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		return fmt.Errorf("%w: %w", errNotCalled, err)
	}
	if s.rolledBack(err) {
		if err = s.leftBehind(ctx, conn, err); !errors.Is(err, backend.ErrUnanswered) {
			return s.fault(ctx, "call the procedure", err)
		}
	}
	return s.unknown("call the procedure", err)
}

// Server error numbers of a statement, and never of a commit: there is no procedure, and the table is full.
const (
	mysqlNoProcedure = 1305
	mysqlTableFull   = 1114
	mysqlNoSuchCall  = 1235 // it is not supported: of Vitess for a call on shards
)

// rolledBack reports that an answer of the server is one after which nothing is committed.
func (s *Store) rolledBack(err error) bool {
	rejects := backend.Rejects(err)
	return backend.FaultOf(err) != backend.Failed || rejects == stock.ReadOnly || rejects == stock.NotPermitted ||
		backend.IsMySQL(err, mysqlNoProcedure, mysqlTableFull, mysqlNoSuchCall)
}

// saleAnswer is the row that the procedure answers with. An item that does not exist has no
// figures.
type saleAnswer struct {
	outcome                           string
	left, perUser, allocated, version sql.NullInt64
	verdicts                          saleVerdicts
}

// saleVerdicts are the words on each purchase.
type saleVerdicts []saleVerdict

// saleVerdict is what became of one purchase. number is the id of its order, or what its buyer has.
type saleVerdict struct {
	word   string
	number int64
}

func (v *saleVerdicts) Scan(column any) error {
	document, _ := column.([]byte)
	return json.Unmarshal(document, v)
}

func (v *saleVerdict) UnmarshalJSON(document []byte) error {
	return json.Unmarshal(document, &[]any{&v.word, &v.number})
}

// outcomes completes the orders that were sold, and says why the others were not.
func (a saleAnswer) outcomes(goodsID int64, orders []stock.Order) ([]stock.Outcome, error) {
	switch a.outcome {
	case "sold", "rejected":
	case "unknown":
		return nil, fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	case "late":
		return nil, fmt.Errorf("%w: the procedure has taken too long, and has rolled back", stock.ErrBusy)
	default:
		return nil, rowChanged(goodsID)
	}
	if len(a.verdicts) != len(orders) {
		return nil, fmt.Errorf("%w: the procedure answers %d purchases of %d", stock.ErrUnknownOutcome, len(a.verdicts), len(orders))
	}
	outcomes, left := make([]stock.Outcome, len(orders)), a.left.Int64
	for i := len(orders) - 1; i >= 0; i-- {
		verdict := a.verdicts[i]
		if outcomes[i].Rejected = a.rejection(verdict); outcomes[i].Rejected != nil {
			continue
		}
		orders[i].ID, orders[i].Remaining = strconv.FormatInt(verdict.number, 10), left
		left += orders[i].Quantity
		outcomes[i].Order = orders[i]
	}
	return outcomes, nil
}

func (a saleAnswer) rejection(v saleVerdict) error {
	switch v.word {
	case "sold":
		return nil
	case "limit":
		return &stock.UserLimitError{PerUser: a.perUser.Int64, Has: v.number}
	case "buyer":
		return stock.ErrUserUnknown
	case "off sale":
		return &stock.AllocatedError{Version: a.version.Int64, Withheld: true}
	case "allocated":
		return &stock.AllocatedError{Units: a.allocated.Int64, Version: a.version.Int64}
	default:
		return stock.ErrInsufficientStock
	}
}

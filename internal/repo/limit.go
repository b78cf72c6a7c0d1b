package repo

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

const (
	setLimit = `UPDATE tb_goods_stock SET per_user = ?, ` + besideSales + ` WHERE goods_id = ?`

	// An epoch ends with its limit: orders of it that are pending are compared again.
	setLimitOfPlaces = `UPDATE tb_stock_place SET per_user = ?, epoch = epoch + 1 WHERE goods_id = ?`

	forgetUsers = `DELETE FROM tb_stock_user WHERE goods_id = ?`

	// recountUsers is followed by the sums of both tables. What the buyers have was allowed.
	recountUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed) SELECT goods_id, buyer, SUM(units), SUM(units) FROM (`
	recountUsersEnd = `) AS b GROUP BY goods_id, buyer`

	// sumUsersOf is followed by the dialect's user, and sumUsersUnits by a table.
	sumUsersOf    = `SELECT goods_id, `
	sumUsersUnits = ` AS buyer, SUM(` + bought + `) AS units FROM `
	ofItem        = ` WHERE goods_id = ? AND user_id IS NOT NULL GROUP BY goods_id, buyer`

	// bought is what a row of the ledger adds to what its buyer has. A confirmation adds
	// nothing: its hold did.
	bought = `CASE WHEN kind IN ('deduct', 'hold') THEN quantity
		WHEN kind IN ('release', 'expire', 'return') THEN -quantity ELSE 0 END`

	// A limit that is set halfway has the row of a buyer without a name, which no purchase counts.
	beginAllowing  = countUsers + `(?, '', 0, 0, 0, 0)`
	isAllowing     = `SELECT 1 FROM tb_stock_user WHERE goods_id = ? AND user_id = ''`
	isUnfinished   = `SELECT EXISTS (` + isAllowing + `), EXISTS (SELECT 1 FROM tb_stock_place WHERE goods_id = ? AND closed AND units > 0)`
	finishAllowing = `DELETE FROM tb_stock_user WHERE goods_id = ? AND user_id = ''`

	allowUsers = `UPDATE tb_stock_user SET allowed = units WHERE goods_id = ? AND units > ? AND units > allowed`
)

// RecountWithin limits the transaction that sets a limit, which may read the whole ledger of an
// item.
const RecountWithin = 10 * time.Minute

// SetLimit sets the limit per buyer of an item, 0 to stock.MaxPerUser; 0 means unlimited. After
// it returns nothing is sold under another limit, except orders that are already pending.
//
// The first limit counts what every buyer has bought before: purchases of the item wait while the
// ledger is read. It may return stock.ErrUnknownGoods. stock.ErrUnknownOutcome: the limit may be
// set; setting it again completes it.
func (s *Store) SetLimit(ctx context.Context, goodsID, perUser int64) error {
	end, err := s.Turn(ctx, goodsID)
	if err != nil {
		return err
	}
	defer end()
	long := *s
	long.timeout = RecountWithin
	halfway, err := long.setLimit(ctx, goodsID, perUser)
	if err != nil || perUser == 0 || !halfway {
		return err // where it is not due, it would allow what a buyer has beyond the limit
	}
	// A buyer with more than the new, lower limit was allowed to have it. This is another
	// transaction: in the same one it would hold the row and wait for buyers, whose
	// transactions wait for the row.
	err = long.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.write(ctx, "allow what buyers have", allowUsers, goodsID, perUser); err != nil {
			return err
		}
		_, err := tx.write(ctx, "finish to allow what buyers have", finishAllowing, goodsID)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: the limit was set: %w", stock.ErrUnknownOutcome, err)
	}
	return nil
}

// setLimit is SetLimit but for what buyers have: halfway, it is not allowed yet. Its row of the ledger comes last, so that the
// running totals need not wait for the count.
func (s *Store) setLimit(ctx context.Context, goodsID, perUser int64) (halfway bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		if halfway, _, err = s.unfinished(ctx, tx.conn(), goodsID); err != nil || goods.PerUser == perUser {
			return err
		}
		if _, err := tx.write(ctx, "set limit", setLimit, perUser, goodsID); err != nil {
			return err
		}
		if _, err := tx.write(ctx, "set limit of places", setLimitOfPlaces, perUser, goodsID); err != nil {
			return err
		}
		switch {
		case goods.PerUser == 0:
			err = tx.recount(ctx, goodsID)
		case halfway || perUser == 0 || perUser > goods.PerUser: // buyers were counted all the while
		default:
			halfway = true
			_, err = tx.write(ctx, "begin to allow what buyers have", beginAllowing, goodsID)
		}
		if err != nil {
			return err
		}
		return tx.appendSettings(ctx, goodsID, stock.LimitSet, stock.Settings{PerUser: &perUser})
	})
	return halfway, err
}

// Unfinished reports which changes of an item the database has begun and not ended: a lower limit that is set halfway,
// and a recall that waits for pending orders or was cut off.
func (s *Store) Unfinished(ctx context.Context, goodsID int64) (limited, recalled bool, err error) {
	return s.unfinished(ctx, s.pool, goodsID)
}

func (s *Store) unfinished(ctx context.Context, conn gorm.ConnPool, goodsID int64) (limited, recalled bool, err error) {
	err = conn.QueryRowContext(ctx, isUnfinished, goodsID, goodsID).Scan(&limited, &recalled)
	return limited, recalled, s.fault(ctx, "read changes that are not finished", err)
}

// recount counts the units of each buyer in the ledger and its archive. It holds the locks of the row and the
// allocations: earlier writers have committed, and later ones find another limit.
func (t *Tx) recount(ctx context.Context, goodsID int64) error {
	if _, err := t.write(ctx, "forget buyers", forgetUsers, goodsID); err != nil {
		return err
	}
	sums := inBoth(sumUsersOf+t.store.dialect.userBytes+sumUsersUnits, ofItem)
	_, err := t.write(ctx, "count buyers anew", recountUsers+sums+recountUsersEnd, goodsID, goodsID)
	return err
}

// auditUsers compares the units of each buyer in the ledger with its count, in one statement, so
// that both are read as of one moment. The rows are those of the ledger and its archive.
const (
	auditUsersOfLedger = `SELECT
			COUNT(CASE WHEN u.bought <> u.counted THEN 1 END) AS miscounted,
			COUNT(CASE WHEN u.bought > g.per_user AND u.bought > u.allowed THEN 1 END) AS beyond_limit
		FROM tb_goods_stock AS g, (
			SELECT buyer, SUM(units) AS bought, SUM(counted) AS counted, SUM(allowed) AS allowed FROM (
				SELECT goods_id, user_id AS buyer, 0 AS units, units AS counted, allowed FROM tb_stock_user WHERE goods_id = ?
				UNION ALL `
	auditUsersOfRows   = ` AS buyer, SUM(` + bought + `), 0, 0 FROM `
	auditUsersOfCounts = `
			) AS b GROUP BY buyer
		) AS u WHERE g.goods_id = ? AND g.per_user > 0`
)

// AuditUsers compares the counts of an item's buyers with its ledger. It reads every row of both.
// An item without a limit has no counts.
func (s *Store) AuditUsers(ctx context.Context, goodsID int64) (found stock.Buyers, err error) {
	rows := inBoth(sumUsersOf+s.dialect.userBytes+auditUsersOfRows, ofItem)
	statement := auditUsersOfLedger + rows + auditUsersOfCounts
	err = s.pool.QueryRowContext(ctx, statement, goodsID, goodsID, goodsID, goodsID).Scan(&found.Miscounted, &found.BeyondLimit)
	return found, s.fault(ctx, "audit buyers", err)
}

// For an item with a limit, the units of each buyer are counted in the transaction that writes the
// ledger: other purchases of the same buyer wait until it commits or rolls back. An item without a
// limit is not counted and costs no statement.
//
// Buyers are counted before anything else is written or locked, in the order of their names: of two
// batches that share buyers, one waits. The contended row stays last.
//
// The row, or the bucket, prevents sales under an old limit: it is written only if its limit is the
// one of the transaction. For pending orders the epoch of the allocation does that.

const (
	countUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed, kept, returned) VALUES `
	countUsersRow = `(?, ?, ?, ?, ?, ?)`

	readUsers = `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ? AND user_id IN `

	readAllUsers = `SELECT user_id, units, units - kept, returned FROM tb_stock_user WHERE goods_id = ? AND user_id > ? ORDER BY user_id LIMIT ?`

	// readChanges is followed by a list of users.
	readChanges = `SELECT p.units, p.epoch, p.per_user, p.closed, p.added, u.user_id, u.units, u.units - u.kept, u.returned
		FROM tb_stock_place AS p LEFT JOIN tb_stock_user AS u ON u.goods_id = p.goods_id AND u.user_id IN (`
	readChangesOf = `) WHERE p.goods_id = ? AND p.place = ?`
)

// userUnits are units that a buyer has of an item, or buys.
type userUnits struct {
	goodsID int64
	user    string
	units   int64
	// allowed is not 0 if the buyer may keep what it has with these units.
	allowed int64
	// kept are those of pending orders, and returned those that are given back.
	kept, returned int64
}

// sumUsers sums the units of each buyer, in the order in which buyers are locked. Anonymous
// purchases are left out.
func sumUsers(each []userUnits) []userUnits {
	type key struct {
		goodsID int64
		user    string
	}
	sums := make(map[key]userUnits)
	for _, u := range each {
		if u.user == "" {
			continue
		}
		sum := sums[key{u.goodsID, u.user}]
		u.units += sum.units
		u.allowed += sum.allowed
		u.kept += sum.kept
		u.returned += sum.returned
		sums[key{u.goodsID, u.user}] = u
	}
	list := slices.Collect(maps.Values(sums))
	slices.SortFunc(list, func(a, b userUnits) int {
		return cmp.Or(cmp.Compare(a.goodsID, b.goodsID), cmp.Compare(a.user, b.user))
	})
	return list
}

// usersOf are the buyers of a batch; without a limit there are none to count.
func usersOf(goodsID, perUser int64, batch []stock.Purchase) []userUnits {
	if perUser == 0 {
		return nil
	}
	users := make([]userUnits, len(batch))
	for i, p := range batch {
		users[i] = userUnits{goodsID: goodsID, user: p.UserID, units: p.Quantity}
	}
	return sumUsers(users)
}

// CountIn makes the transaction sell under a limit per buyer, counts the whole batch, and returns
// what each buyer had before. What is not sold must be counted out or rolled back. With limit 0
// nothing is counted.
func (t *Tx) CountIn(ctx context.Context, goodsID, perUser int64, batch []stock.Purchase) (stock.Limit, error) {
	t.perUser = perUser
	users := usersOf(goodsID, perUser, batch)
	if len(users) == 0 {
		return stock.Limit{PerUser: perUser}, nil
	}
	statement, args := countStatement(users, t.store.dialect.onUser)
	var has map[string]int64
	var err error
	if t.store.returns {
		has, err = t.store.readUsers(ctx, t.conn(), "count buyers", statement+` RETURNING user_id, units`, args...)
	} else if _, err = t.write(ctx, "count buyers", statement, args...); err == nil {
		has, err = t.store.has(ctx, t.conn(), goodsID, users, "")
	}
	if err != nil {
		return stock.Limit{}, err
	}
	for _, u := range users {
		has[u.user] -= u.units
	}
	return stock.Limit{PerUser: perUser, Has: has}, nil
}

// CountOut reverts the count of what is not sold.
func (t *Tx) CountOut(ctx context.Context, goodsID int64, batch []stock.Purchase) error {
	users := usersOf(goodsID, t.perUser, batch)
	for i := range users {
		users[i].units = -users[i].units
	}
	return t.count(ctx, "count buyers out", users)
}

// count adds to what buyers have.
func (t *Tx) count(ctx context.Context, doing string, users []userUnits) error {
	if len(users) == 0 {
		return nil
	}
	statement, args := countStatement(users, t.store.dialect.onUser)
	_, err := t.write(ctx, doing, statement, args...)
	return err
}

func countStatement(users []userUnits, onUser string) (statement string, args []any) {
	args = make([]any, 0, 6*len(users))
	for _, u := range users {
		args = append(args, u.goodsID, u.user, u.units, u.allowed, u.kept, u.returned)
	}
	return countUsers + listOf(len(users), countUsersRow) + onUser, args
}

// ConfirmLimit checks that the item still has the limit of the transaction, for transactions that
// reject every purchase and write nothing. ErrRowChanged: it has another limit.
func (t *Tx) ConfirmLimit(ctx context.Context, goodsID int64) error {
	goods, err := t.Goods(ctx, goodsID)
	if err == nil && goods.PerUser != t.perUser {
		err = rowChanged(goodsID)
	}
	return err
}

// countPending counts the buyers of pending orders under a limit. Accepted orders are written
// whatever their buyers have: they were compared when they were accepted. Orders accepted under
// an earlier limit are allowed under this one.
func (t *Tx) countPending(ctx context.Context, orders []PendingOrder) error {
	var users []userUnits
	for _, p := range orders {
		if !p.Limited {
			continue
		}
		u := userUnits{goodsID: p.GoodsID, user: p.UserID, units: p.Quantity, kept: p.Quantity}
		if p.Earlier {
			u.allowed = p.Quantity
		}
		users = append(users, u)
	}
	return t.count(ctx, "count pending orders", sumUsers(users))
}

// Has returns what the buyers of a batch have of an item, under the limit that was read with it.
// With limit 0 it asks nothing.
func (s *Store) Has(ctx context.Context, goodsID, perUser int64, batch []stock.Purchase) (limit stock.Limit, err error) {
	limit.PerUser = perUser
	users := usersOf(goodsID, perUser, batch)
	if len(users) == 0 {
		return limit, nil
	}
	limit.Has, err = s.has(ctx, s.pool, goodsID, users, "")
	return limit, err
}

// has reads what users have of one item, and locks it as the end of the statement says.
func (s *Store) has(ctx context.Context, conn gorm.ConnPool, goodsID int64, users []userUnits, lock string) (map[string]int64, error) {
	args := make([]any, 0, 1+len(users))
	args = append(args, goodsID)
	for _, u := range users {
		args = append(args, u.user)
	}
	return s.readUsers(ctx, conn, "read buyers", readUsers+`(`+listOf(len(users), `?`)+`)`+lock, args...)
}

func (s *Store) readUsers(ctx context.Context, conn gorm.ConnPool, doing, statement string, args ...any) (map[string]int64, error) {
	has := make(map[string]int64)
	err := s.each(ctx, conn, doing, func(scan scanRow) error {
		var user string
		var units int64
		err := scan(&user, &units)
		has[user] = units
		return err
	}, statement, args...)
	return has, err
}

// UsersAtOnce is how many users a page of UsersAfter has.
const UsersAtOnce = 1000

// UserUnits is what a user has of an item.
type UserUnits struct {
	User  string
	Units int64
	// Beside is Units without those that were written as pending orders: what else the user has bought, less all that
	// was given back. Returned is how much that was; it never falls, and tells a later Beside from an earlier one.
	Beside, Returned int64
}

// UsersAfter is a page of the units of users of an item with a limit, in the order of their names
// after one of them. A page that is not full is the last.
func (s *Store) UsersAfter(ctx context.Context, goodsID int64, after string) ([]UserUnits, error) {
	scan := func(row scanRow) (u UserUnits, err error) {
		err = row(&u.User, &u.Units, &u.Beside, &u.Returned)
		return u, err
	}
	return readAll(ctx, s, s.pool, "read users", scan, readAllUsers, goodsID, after, UsersAtOnce)
}

// Changes reads an allocation, and what some of its users have, as of one moment. Users that have nothing are left out.
func (s *Store) Changes(ctx context.Context, goodsID int64, allocation string, users ...string) (a Allocation, list []UserUnits, err error) {
	a.GoodsID = goodsID
	args := anys(append([]string{""}, users...)) // the empty one, which no purchase has, keeps the list from being empty
	statement := readChanges + listOf(len(args), `?`) + readChangesOf
	err = s.each(ctx, s.pool, "read changes of a place", func(scan scanRow) error {
		var user sql.NullString
		var units, beside, returned sql.NullInt64
		err := scan(&a.Units, &a.Epoch, &a.PerUser, &a.Closed, &a.Added, &user, &units, &beside, &returned)
		if user.String != "" {
			list = append(list, UserUnits{user.String, units.Int64, beside.Int64, returned.Int64})
		}
		return err
	}, statement, append(args, goodsID, allocation)...)
	return a, list, err
}

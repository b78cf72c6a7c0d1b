package repo

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

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
	countUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed) VALUES `
	countUsersRow = `(?, ?, ?, ?)`

	readUsers = `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ? AND user_id IN `

	readAllUsers = `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ? AND user_id > ? ORDER BY user_id LIMIT ?`

	countAllUsers = `SELECT COUNT(*) FROM tb_stock_user WHERE goods_id = ?`
)

// userUnits are units that a buyer has of an item, or buys.
type userUnits struct {
	goodsID int64
	user    string
	units   int64
	// allowed is not 0 if the buyer may keep what it has with these units.
	allowed int64
}

// sumUsers sums the units of each buyer, in the order in which buyers are locked. Anonymous
// purchases are left out.
func sumUsers(each func(yield func(userUnits) bool)) []userUnits {
	type key struct {
		goodsID int64
		user    string
	}
	sums := make(map[key]userUnits)
	for u := range each {
		if u.user == "" {
			continue
		}
		sum := sums[key{u.goodsID, u.user}]
		u.units += sum.units
		u.allowed += sum.allowed
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
	return sumUsers(func(yield func(userUnits) bool) {
		for _, p := range batch {
			if !yield(userUnits{goodsID: goodsID, user: p.UserID, units: p.Quantity}) {
				return
			}
		}
	})
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
		has, err = t.store.has(ctx, t.conn(), goodsID, users)
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
	if len(users) == 0 {
		return nil
	}
	for i := range users {
		users[i].units = -users[i].units
	}
	statement, args := countStatement(users, t.store.dialect.onUser)
	_, err := t.write(ctx, "count buyers out", statement, args...)
	return err
}

func countStatement(users []userUnits, onUser string) (statement string, args []any) {
	args = make([]any, 0, 4*len(users))
	for _, u := range users {
		args = append(args, u.goodsID, u.user, u.units, u.allowed)
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
	users := sumUsers(func(yield func(userUnits) bool) {
		for _, p := range orders {
			u := userUnits{goodsID: p.GoodsID, user: p.UserID, units: p.Quantity}
			if p.Earlier {
				u.allowed = p.Quantity
			}
			if p.Limited && !yield(u) {
				return
			}
		}
	})
	if len(users) == 0 {
		return nil
	}
	statement, args := countStatement(users, t.store.dialect.onUser)
	_, err := t.write(ctx, "count promises", statement, args...)
	return err
}

// Has returns what the buyers of a batch have of an item, under the limit that was read with it.
// With limit 0 it asks nothing.
func (s *Store) Has(ctx context.Context, goodsID, perUser int64, batch []stock.Purchase) (limit stock.Limit, err error) {
	limit.PerUser = perUser
	users := usersOf(goodsID, perUser, batch)
	if len(users) == 0 {
		return limit, nil
	}
	limit.Has, err = s.has(ctx, s.pool, goodsID, users)
	return limit, err
}

func (s *Store) has(ctx context.Context, conn gorm.ConnPool, goodsID int64, users []userUnits) (map[string]int64, error) {
	args := make([]any, 0, 1+len(users))
	args = append(args, goodsID)
	for _, u := range users {
		args = append(args, u.user)
	}
	return s.readUsers(ctx, conn, "read buyers", readUsers+`(`+listOf(len(users), `?`)+`)`, args...)
}

func (s *Store) readUsers(ctx context.Context, conn gorm.ConnPool, doing, statement string, args ...any) (map[string]int64, error) {
	has := make(map[string]int64)
	rows, err := conn.QueryContext(ctx, statement, args...)
	if err != nil {
		return has, s.fault(ctx, doing, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err has the error
	for rows.Next() {
		var user string
		var units int64
		if err := rows.Scan(&user, &units); err != nil {
			return has, s.fault(ctx, doing, err)
		}
		has[user] = units
	}
	return has, s.fault(ctx, doing, rows.Err())
}

// UsersAtOnce is how many users a page of UsersAfter has.
const UsersAtOnce = 1000

// UserUnits is what a user has of an item.
type UserUnits struct {
	User  string
	Units int64
}

// UsersAfter is a page of the units of users of an item with a limit, in the order of their names
// after one of them. A page that is not full is the last.
func (s *Store) UsersAfter(ctx context.Context, goodsID int64, after string) (page []UserUnits, err error) {
	rows, err := s.pool.QueryContext(ctx, readAllUsers, goodsID, after, UsersAtOnce)
	if err != nil {
		return nil, s.fault(ctx, "read users", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err has the error
	for rows.Next() {
		var u UserUnits
		if err := rows.Scan(&u.User, &u.Units); err != nil {
			return nil, s.fault(ctx, "read users", err)
		}
		page = append(page, u)
	}
	return page, s.fault(ctx, "read users", rows.Err())
}

// CountUsers is how many users have, or had, units of an item that has a limit.
func (s *Store) CountUsers(ctx context.Context, goodsID int64) (n int64, err error) {
	err = s.pool.QueryRowContext(ctx, countAllUsers, goodsID).Scan(&n)
	return n, s.fault(ctx, "count users", err)
}

package repo

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// Of a goods with a limit, the units of each buyer are counted in the transaction
// that writes the ledger: whoever counts a buyer in keeps every other purchase of
// that buyer waiting until it commits or rolls back. A goods without a limit is not
// counted, and costs no statement.
//
// Buyers are counted in before anything else is written or locked, in the order of
// their names: of two batches that share buyers, one waits. The row that everyone
// wants stays the last.
//
// That nobody sells under an old limit is for the row, or the bucket: it is written
// only where its limit is the one that the transaction sells under. For a promise
// it is for the epoch of the place.

const (
	countUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed) VALUES `
	countUsersRow = `(?, ?, ?, ?)`

	readUsers = `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ? AND user_id IN `

	readAllUsers = `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ? AND user_id > ? ORDER BY user_id LIMIT ?`

	countAllUsers = `SELECT COUNT(*) FROM tb_stock_user WHERE goods_id = ?`
)

// userUnits is what a buyer has of a goods, or takes of it.
type userUnits struct {
	goodsID int64
	user    string
	units   int64
	// allowed is not 0 where the buyer is allowed to have what he has with these.
	allowed int64
}

// sumUsers adds up what each buyer takes, in the order in which they are locked.
// Purchases of nobody in particular are left out.
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

// usersOf are the buyers of a batch; of a goods without a limit nobody counts.
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

// CountIn has the transaction sell under a limit of one buyer, counts the whole
// batch in, and tells what each buyer had before. What is not sold then must be
// counted out, or rolled back. Where the limit is 0 there is nothing to count.
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

// CountOut gives back what was counted in and is not sold.
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

// ConfirmLimit checks that the item still has the limit that the transaction sells
// under: for transactions that reject every purchase, and write nothing.
// ErrRowChanged: it has another one.
func (t *Tx) ConfirmLimit(ctx context.Context, goodsID int64) error {
	goods, err := t.Goods(ctx, goodsID)
	if err == nil && goods.PerUser != t.perUser {
		err = rowChanged(goodsID)
	}
	return err
}

// countPromises counts those in whose units were promised under a limit. What was
// promised is kept, whatever they have: it was compared when it was promised. Where
// that was under an earlier limit, they are allowed to have it under this one.
func (t *Tx) countPromises(ctx context.Context, promises []Promise) error {
	users := sumUsers(func(yield func(userUnits) bool) {
		for _, p := range promises {
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

// Has tells what the buyers of a batch have of a goods, under a limit that was read
// with it. Where the limit is 0 there is nothing to ask for.
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
	defer rows.Close() //nolint:errcheck // what can fail has failed in rows.Err
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

// UsersAfter is a page of what users have of an item that has a limit, in the order of
// their names and after one of them. A page that is not full is the last.
func (s *Store) UsersAfter(ctx context.Context, goodsID int64, after string) (page []UserUnits, err error) {
	rows, err := s.pool.QueryContext(ctx, readAllUsers, goodsID, after, UsersAtOnce)
	if err != nil {
		return nil, s.fault(ctx, "read users", err)
	}
	defer rows.Close() //nolint:errcheck // what can fail has failed in rows.Err
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

package repo

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"gorm.io/gorm"
)

// On Vitess a transaction writes to one shard, and reads as of one moment there. What concerns all shards is
// done without a transaction: the mark up to which the ledger is final is moved by one statement, and no
// running totals are kept.

const (
	readMark = `SELECT upto, seen, seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND FROM tb_ledger_settled WHERE id = 1`
	seeLast  = `UPDATE tb_ledger_settled SET seen = ?, seen_at = UTC_TIMESTAMP(6) WHERE id = 1 AND seen = ? AND seen_at < UTC_TIMESTAMP(6)`
	moveMark = `UPDATE tb_ledger_settled SET upto = ? WHERE id = 1 AND upto = ?`

	// awaitRows waits for the transactions that have written rows which are not committed.
	awaitRows = `SELECT COUNT(*) FROM tb_stock_ledger FORCE INDEX (PRIMARY) WHERE id > ? AND id <= ? LOCK IN SHARE MODE`

	// lockItems is followed by a list, and the lock.
	lockItems = `SELECT goods_id FROM tb_goods_stock WHERE goods_id IN (`

	// showVindexes is followed by a table.
	showVindexes = `SHOW VSCHEMA VINDEXES ON `

	readIDs = `SELECT id FROM tb_stock_ledger WHERE id > ? ORDER BY id LIMIT ?`
)

// settleShards moves the mark over ids that are old enough, by the rules of audit.go. The ids of all shards are from one
// sequence, which ascends.
func (s *Store) settleShards(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.pool.TxTimeout)
	defer cancel()
	var upto, seen int64
	var old bool
	if err := s.pool.QueryRowContext(ctx, readMark, s.settleAfter().Microseconds()).Scan(&upto, &seen, &old); err != nil {
		return false, s.fault(ctx, "read what is settled", err)
	}
	if upto >= seen {
		var last int64
		if err := s.pool.QueryRowContext(ctx, readLastID).Scan(&last); err != nil {
			return false, s.fault(ctx, "read last id", err)
		}
		_, err := s.pool.ExecContext(ctx, seeLast, last, seen)
		return false, s.fault(ctx, "see what can be settled", err)
	}
	if !old {
		return false, nil
	}
	next := min(seen, upto+settleRows)
	var rows int64
	if err := s.pool.QueryRowContext(ctx, awaitRows, upto, next).Scan(&rows); err != nil {
		return false, s.fault(ctx, "wait for the ledger", err)
	}
	_, err = s.pool.ExecContext(ctx, moveMark, next, upto)
	return next < seen, s.fault(ctx, "settle", err)
}

// runOfShards is the last id of the run without a gap after another one.
func (s *Store) runOfShards(ctx context.Context, after int64) (last int64, err error) {
	last, gap := after, false
	err = s.each(ctx, s.pool, "read what follows what is settled", func(scan scanRow) error {
		var id int64
		err := scan(&id)
		if gap = gap || id != last+1; !gap {
			last = id
		}
		return err
	}, readIDs, after, runRows)
	return last, err
}

// UniqueOnAShard is the first column whose values are unique on each shard alone, or empty: a copy of a purchase for an item
// of another shard would be sold again. It is for one shard, too, on which nothing is wrong until it is divided.
func (s *Store) UniqueOnAShard(ctx context.Context) (column string, err error) {
	if !s.sharded {
		return "", nil
	}
	for _, of := range [][2]string{{"tb_stock_ledger", "request_id"}, {"tb_reservation", "number"}, {"tb_reservation", "payment_reference"}} {
		looked := false
		err := s.each(ctx, s.pool, "read the VSchema", func(scan scanRow) error {
			var columns, name, kind, params, owner string
			err := scan(&columns, &name, &kind, &params, &owner)
			looked = looked || columns == of[1] && kind == "consistent_lookup_unique" && !strings.Contains(params, "write_only")
			return err
		}, showVindexes+of[0])
		if err != nil || !looked {
			return of[0] + "." + of[1], err
		}
	}
	return "", nil
}

// readShards reads where the range of each shard of a keyspace ends: "shop/40-80" at 80, and the last one nowhere.
func (s *Store) readShards(ctx context.Context, keyspace string) (ends []string, err error) {
	err = s.each(ctx, s.pool, "read the shards", func(scan scanRow) error {
		var name string
		err := scan(&name)
		if shard, of := strings.CutPrefix(name, keyspace+"/"); of {
			_, end, _ := strings.Cut(shard, "-")
			ends = append(ends, cmp.Or(end, "the last"))
		}
		return err
	}, s.dialect.shards)
	slices.Sort(ends) // digits and a to f are before the last
	return ends, err
}

// ShardOf is the number of the shard that has the row by which Vitess finds a request id or the number of a reservation, by the
// xxhash of deploy/vitess/shop.vschema.json; 0 where there are no shards. What a shard is divided into later counts as one: it
// waits for each other, and is not wrong.
func (s *Store) ShardOf(key string) int {
	if !s.sharded {
		return 0
	}
	var id [8]byte
	binary.LittleEndian.PutUint64(id[:], xxhash.Sum64String(key))
	at := hex.EncodeToString(id[:])
	return slices.IndexFunc(s.shards, func(end string) bool { return at < end })
}

// ShardOfItem is the number of the shard that has an item.
func (s *Store) ShardOfItem(goodsID int64) int { return s.ShardOf(strconv.FormatInt(goodsID, 10)) }

// lockFirst locks the rows of items on shards, and returns those that it has locked; elsewhere all, which the caller locks.
// Vitess 24 sends a SELECT with a subquery, such as readRow, without its FOR UPDATE, and does not say so.
func (s *Store) lockFirst(ctx context.Context, conn gorm.ConnPool, lock string, goodsIDs ...int64) (locked []int64, err error) {
	if !s.sharded {
		return goodsIDs, nil
	}
	return readAll(ctx, s, conn, "lock rows", scanOne[int64], lockItems+listOf(len(goodsIDs), `?`)+`)`+lock, anys(goodsIDs)...)
}

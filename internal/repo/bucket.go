package repo

import (
	"context"
	"strconv"

	"gorm.io/gorm/clause"

	"github.com/stockd/stockd/internal/stock"
)

// A bucket is an allocation with a share of an item's stock: purchases from different buckets do
// not wait for each other. The row of the item keeps units that are in no bucket, such as those of
// a restock.
//
// Taking units locks one bucket, and nothing after it. Spreading units locks the row, then every
// bucket in the order of their names, and only then writes: of two transactions that spread, one
// waits for the row. Sessions are READ COMMITTED, so that no transaction holds a gap lock into
// which a new bucket would have to be inserted.

// bucketPrefix begins the names of buckets; bucketEnd is the first name after all of them.
const (
	bucketPrefix = "bucket/"
	bucketEnd    = "bucket0" // '0' follows '/'
)

// bucketName is the allocation of a bucket; buckets are numbered from 0.
func bucketName(number int) string { return bucketPrefix + strconv.Itoa(number) }

// Bucketed is the strategy whose units are in buckets. Every other allocation has the
// name of its strategy.
const Bucketed = "sql-bucket"

const (
	takeIfEnough = `UPDATE tb_stock_place SET units = units - ? WHERE goods_id = ? AND place = ? AND units >= ?
		AND per_user = ?`

	inBuckets = `place >= '` + bucketPrefix + `' AND place < '` + bucketEnd + `'`

	readBuckets = `SELECT place, units FROM tb_stock_place
		WHERE goods_id = ? AND ` + inBuckets + ` ORDER BY place`

	readWithBuckets = withOwn + inBuckets + ownUnits + inBuckets + otherUnits

	// These count the units of an allocation's rows as stock; the condition that names its
	// rows comes twice in between.
	withOwn = `SELECT g.goods_id, g.stock + COALESCE(p.own, 0), COALESCE(p.others, 0), ` + goodsColumns + `
		FROM tb_goods_stock AS g LEFT JOIN (SELECT goods_id, SUM(CASE WHEN `
	ownUnits   = ` THEN units ELSE 0 END) AS own, SUM(CASE WHEN `
	otherUnits = ` THEN 0 ELSE units END) AS others
			FROM tb_stock_place WHERE goods_id = ? GROUP BY goods_id
		) AS p ON p.goods_id = g.goods_id WHERE g.goods_id = ?`
)

// allocationRow is a row of tb_stock_place.
type allocationRow struct {
	GoodsID int64  `gorm:"primaryKey"`
	Place   string `gorm:"primaryKey"`
	Units   int64
	PerUser int64
}

func (allocationRow) TableName() string { return "tb_stock_place" }

// Buckets are the units in each existing bucket of an item.
type Buckets map[string]int64

// Sum is the units of all buckets.
func (b Buckets) Sum() (units int64) {
	for _, n := range b {
		units += n
	}
	return units
}

// Has reports whether a bucket exists, empty or not.
func (b Buckets) Has(number int) bool {
	_, has := b[bucketName(number)]
	return has
}

// Units is the units in a bucket, 0 if it does not exist.
func (b Buckets) Units(number int) int64 { return b[bucketName(number)] }

// GoodsWithBuckets reads the row, with the units of its buckets. It may return
// ErrUnknownGoods.
func (s *Store) GoodsWithBuckets(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.scanGoods(ctx, s.pool.QueryRowContext(ctx, readWithBuckets, goodsID, goodsID), goodsID)
}

// TakeFromBucket subtracts units from a bucket if it has that many, and reports whether
// it did. It does not if the item has another limit.
func (t *Tx) TakeFromBucket(ctx context.Context, goodsID int64, number int, units int64) (taken bool, err error) {
	rows, err := t.write(ctx, "take from bucket", takeIfEnough, units, goodsID, bucketName(number), units, t.perUser)
	return rows == 1, err
}

// Buckets reads the units of each bucket without locking any.
func (t *Tx) Buckets(ctx context.Context, goodsID int64) (Buckets, error) {
	return t.readBuckets(ctx, "read buckets", readBuckets, goodsID)
}

// Gather reads the row of an item and its buckets, and keeps every other writer from
// both until the transaction ends. Allocated counts the units of its other allocations. It
// may return ErrUnknownGoods, and ErrRowChanged if the item has another limit.
func (t *Tx) Gather(ctx context.Context, goodsID int64) (row stock.Goods, buckets Buckets, err error) {
	if row, err = t.GoodsForUpdate(ctx, goodsID); err != nil {
		return row, nil, err
	}
	if buckets, err = t.lockBuckets(ctx, goodsID); err != nil {
		return row, nil, err
	}
	if row.Allocated -= buckets.Sum(); row.Allocated > 0 {
		// The row was read before its buckets were waited for: units that were sold from
		// them meanwhile are in no other allocation.
		var now stock.Goods
		now, err = t.store.scanGoods(ctx, t.conn().QueryRowContext(ctx, readWithBuckets, goodsID, goodsID), goodsID)
		row.Allocated = now.Allocated
	}
	return row, buckets, err
}

func (t *Tx) lockBuckets(ctx context.Context, goodsID int64) (Buckets, error) {
	return t.readBuckets(ctx, "lock buckets", readBuckets+t.store.dialect.forUpdate, goodsID)
}

// Spread puts units evenly into count buckets, takes away those that were gathered
// beyond, and leaves the rest of what was gathered in the row.
func (t *Tx) Spread(ctx context.Context, row stock.Goods, units, rest int64, gathered Buckets, count int) error {
	rows := make([]allocationRow, count)
	each, more := units/int64(count), units%int64(count)
	for i := range rows {
		rows[i] = allocationRow{GoodsID: row.ID, Place: bucketName(i), Units: each, PerUser: t.perUser}
		if int64(i) < more {
			rows[i].Units++
		}
	}
	err := t.db.WithContext(ctx).Clauses(clause.OnConflict{
		Columns:   []clause.Column{{Name: "goods_id"}, {Name: "place"}},
		DoUpdates: clause.AssignmentColumns([]string{"units", "per_user"}),
	}).Create(&rows).Error
	if err != nil {
		return t.store.fault(ctx, "fill buckets", err)
	}
	if err := t.dropBuckets(ctx, row.ID, beyond(gathered, count)); err != nil {
		return err
	}
	return t.SetStock(ctx, row, rest)
}

func beyond(gathered Buckets, count int) []string {
	wanted := make(map[string]bool, count)
	for i := range count {
		wanted[bucketName(i)] = true
	}
	var allocations []string
	for allocation := range gathered {
		if !wanted[allocation] {
			allocations = append(allocations, allocation)
		}
	}
	return allocations
}

func (t *Tx) dropBuckets(ctx context.Context, goodsID int64, allocations []string) error {
	if len(allocations) == 0 {
		return nil
	}
	err := t.db.WithContext(ctx).Where("goods_id = ? AND place IN ?", goodsID, allocations).Delete(&allocationRow{}).Error
	return t.store.fault(ctx, "drop buckets", err)
}

func (t *Tx) readBuckets(ctx context.Context, doing, statement string, goodsID int64) (Buckets, error) {
	var rows []allocationRow
	if err := t.db.WithContext(ctx).Raw(statement, goodsID).Scan(&rows).Error; err != nil {
		return nil, t.store.fault(ctx, doing, err)
	}
	buckets := make(Buckets, len(rows))
	for _, row := range rows {
		buckets[row.Place] = row.Units
	}
	return buckets, nil
}

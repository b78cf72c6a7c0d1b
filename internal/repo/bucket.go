package repo

import (
	"context"
	"strconv"

	"gorm.io/gorm/clause"

	"github.com/stockd/stockd/internal/stock"
)

// A bucket is a place that holds a share of a goods' stock: buyers who take from
// different buckets do not wait for each other. The goods' own row keeps what has
// not been put into buckets, such as the units of a restock.
//
// Whoever takes units locks one bucket, and nothing after it. Whoever spreads them
// anew locks the row, then every bucket in the order of their names, and only then
// writes: of two who spread, one waits at the row. Sessions are READ COMMITTED, so
// that nobody holds a gap that a new bucket would have to be inserted into.

// bucketPrefix begins the places that are buckets; bucketEnd is the first name
// after all of them.
const (
	bucketPrefix = "bucket/"
	bucketEnd    = "bucket0" // '0' follows '/'
)

// bucketName is the place of a bucket, which are numbered from 0.
func bucketName(number int) string { return bucketPrefix + strconv.Itoa(number) }

// Bucketed is the strategy whose units are in buckets. Every other allocation has the
// name of its strategy.
const Bucketed = "sql-bucket"

const (
	takeFromBucket = `UPDATE tb_stock_place SET units = units - ? WHERE goods_id = ? AND place = ? AND units >= ?
		AND per_user = ?`

	inBuckets = `place >= '` + bucketPrefix + `' AND place < '` + bucketEnd + `'`

	readBuckets = `SELECT place, units FROM tb_stock_place
		WHERE goods_id = ? AND ` + inBuckets + ` ORDER BY place`

	// readWithBuckets takes what is in buckets for stock.
	readWithBuckets = `SELECT g.goods_id, g.stock + COALESCE(p.bucketed, 0), COALESCE(p.others, 0), ` + goodsColumns + `
		FROM tb_goods_stock AS g LEFT JOIN (
			SELECT goods_id, SUM(CASE WHEN ` + inBuckets + ` THEN units ELSE 0 END) AS bucketed,
				SUM(CASE WHEN ` + inBuckets + ` THEN 0 ELSE units END) AS others
			FROM tb_stock_place WHERE goods_id = ? GROUP BY goods_id
		) AS p ON p.goods_id = g.goods_id WHERE g.goods_id = ?`
)

// placeRow is a row of tb_stock_place.
type placeRow struct {
	GoodsID int64  `gorm:"primaryKey"`
	Place   string `gorm:"primaryKey"`
	Units   int64
	PerUser int64
}

// TableName is the schema's name.
func (placeRow) TableName() string { return "tb_stock_place" }

// Buckets is what is in each bucket of a goods that there is.
type Buckets map[string]int64

// Sum is what is in all of them.
func (b Buckets) Sum() (units int64) {
	for _, n := range b {
		units += n
	}
	return units
}

// Has tells whether there is a bucket of a number, empty or not.
func (b Buckets) Has(number int) bool {
	_, has := b[bucketName(number)]
	return has
}

// Units is what is in a bucket; nothing is in one that there is not.
func (b Buckets) Units(number int) int64 { return b[bucketName(number)] }

// GoodsWithBuckets reads the row with what is in its buckets. ErrUnknownGoods: there is
// none.
func (s *Store) GoodsWithBuckets(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.scanGoods(ctx, s.pool.QueryRowContext(ctx, readWithBuckets, goodsID, goodsID), goodsID)
}

// TakeFromBucket takes units off a bucket where it has that many, and tells
// whether it had. It has none where the goods has another limit.
func (t *Tx) TakeFromBucket(ctx context.Context, goodsID int64, number int, units int64) (taken bool, err error) {
	rows, err := t.write(ctx, "take from bucket", takeFromBucket, units, goodsID, bucketName(number), units, t.perUser)
	return rows == 1, err
}

// Buckets reads what is in each bucket, without locking any.
func (t *Tx) Buckets(ctx context.Context, goodsID int64) (Buckets, error) {
	return t.readBuckets(ctx, "read buckets", readBuckets, goodsID)
}

// Gather reads the row of an item and its buckets, and keeps every other writer from
// both until the transaction ends. ErrUnknownGoods: there is no such goods.
// ErrRowChanged: it has another limit.
func (t *Tx) Gather(ctx context.Context, goodsID int64) (row stock.Goods, buckets Buckets, err error) {
	if row, err = t.GoodsForUpdate(ctx, goodsID); err != nil {
		return row, nil, err
	}
	buckets, err = t.lockBuckets(ctx, goodsID)
	return row, buckets, err
}

func (t *Tx) lockBuckets(ctx context.Context, goodsID int64) (Buckets, error) {
	return t.readBuckets(ctx, "lock buckets", readBuckets+t.store.dialect.forUpdate, goodsID)
}

// Spread puts units evenly into count buckets, takes away those that were gathered
// beyond, and leaves the rest of what was gathered in the row.
func (t *Tx) Spread(ctx context.Context, row stock.Goods, units, rest int64, gathered Buckets, count int) error {
	rows := make([]placeRow, count)
	share, more := units/int64(count), units%int64(count)
	for i := range rows {
		rows[i] = placeRow{GoodsID: row.ID, Place: bucketName(i), Units: share, PerUser: t.perUser}
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

// beyond lists the places of buckets that are none of so many.
func beyond(gathered Buckets, count int) []string {
	wanted := make(map[string]bool, count)
	for i := range count {
		wanted[bucketName(i)] = true
	}
	var places []string
	for place := range gathered {
		if !wanted[place] {
			places = append(places, place)
		}
	}
	return places
}

func (t *Tx) dropBuckets(ctx context.Context, goodsID int64, places []string) error {
	if len(places) == 0 {
		return nil
	}
	err := t.db.WithContext(ctx).Where("goods_id = ? AND place IN ?", goodsID, places).Delete(&placeRow{}).Error
	return t.store.fault(ctx, "drop buckets", err)
}

func (t *Tx) readBuckets(ctx context.Context, doing, statement string, goodsID int64) (Buckets, error) {
	var rows []placeRow
	if err := t.db.WithContext(ctx).Raw(statement, goodsID).Scan(&rows).Error; err != nil {
		return nil, t.store.fault(ctx, doing, err)
	}
	buckets := make(Buckets, len(rows))
	for _, row := range rows {
		buckets[row.Place] = row.Units
	}
	return buckets, nil
}

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

const (
	takeFromBucket = `UPDATE tb_stock_place SET units = units - ? WHERE goods_id = ? AND place = ? AND units >= ?
		AND per_user = ?`

	readBuckets = `SELECT place, units FROM tb_stock_place
		WHERE goods_id = ? AND place >= '` + bucketPrefix + `' AND place < '` + bucketEnd + `' ORDER BY place`
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

// Has tells whether there is a bucket of a number, empty or not.
func (b Buckets) Has(number int) bool {
	_, has := b[bucketName(number)]
	return has
}

// Units is what is in a bucket; nothing is in one that there is not.
func (b Buckets) Units(number int) int64 { return b[bucketName(number)] }

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

// Gather reads all that is in stock of a goods in its row and its buckets, and
// keeps every other writer from both until the transaction ends. ErrUnknownGoods:
// there is no such goods. ErrRowChanged: it has another limit.
func (t *Tx) Gather(ctx context.Context, goodsID int64) (stock.Goods, Buckets, error) {
	goods, err := t.GoodsForUpdate(ctx, goodsID)
	if err != nil {
		return goods, nil, err
	}
	buckets, err := t.readBuckets(ctx, "lock buckets", readBuckets+t.store.dialect.forUpdate, goodsID)
	for _, units := range buckets {
		goods.Stock += units
	}
	return goods, buckets, err
}

// Spread puts units, which are all that is left of what was gathered, evenly into
// count buckets, and takes away the row's own and those buckets that there were
// beyond.
func (t *Tx) Spread(ctx context.Context, row stock.Goods, units int64, gathered Buckets, count int) error {
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
	return t.SetStock(ctx, row, 0)
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

package repo

import (
	"context"
	"reflect"

	"gorm.io/gorm/clause"

	"github.com/stockd/stockd/internal/stock"
)

// goodsStrategy is a row of tb_goods_strategy.
type goodsStrategy struct {
	GoodsID     int64 `gorm:"primaryKey;autoIncrement:false"`
	Strategy    string
	Grouped     *bool
	Fenced      *bool
	MaxQuantity *int64
}

func (goodsStrategy) TableName() string { return "tb_goods_strategy" }

func (r goodsStrategy) choice() stock.Choice {
	return stock.Choice{Strategy: r.Strategy, Group: r.Grouped, Fence: r.Fenced, MaxQuantity: r.MaxQuantity}
}

const (
	readChoice   = `SELECT strategy, grouped, fenced, max_quantity FROM tb_goods_strategy WHERE goods_id = ?`
	writeChoice  = `UPDATE tb_goods_strategy SET strategy = ?, grouped = ?, fenced = ?, max_quantity = ? WHERE goods_id = ?`
	deleteChoice = `DELETE FROM tb_goods_strategy WHERE goods_id = ?`
)

// Choices are those of all items that have one, by the item's id.
func (s *Store) Choices(ctx context.Context) (map[int64]stock.Choice, error) {
	var rows []goodsStrategy
	if err := s.db.WithContext(ctx).Find(&rows).Error; err != nil {
		return nil, s.fault(ctx, "read the strategies of items", err)
	}
	choices := make(map[int64]stock.Choice, len(rows))
	for _, row := range rows {
		choices[row.GoodsID] = row.choice()
	}
	return choices, nil
}

// ChangeChoice changes the choice of an item; changes of one item follow each other. An
// error of change is passed through, and nothing is changed. ErrUnknownGoods: there is
// no such item. The row of the stock is not locked, and no sale waits.
func (s *Store) ChangeChoice(ctx context.Context, goodsID int64, change func(stock.Choice) (stock.Choice, error)) error {
	return s.InItem(ctx, goodsID, func(tx *Tx) error {
		if _, err := tx.Goods(ctx, goodsID); err != nil {
			return err
		}
		// The insert locks the row of the choice, also where there is one already: what
		// is read below is what the change before this one has left.
		first := tx.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&goodsStrategy{GoodsID: goodsID})
		if err := s.fault(ctx, "lock the strategy of an item", first.Error); err != nil {
			return err
		}
		row := goodsStrategy{GoodsID: goodsID}
		found := tx.conn().QueryRowContext(ctx, readChoice+s.dialect.forUpdate, goodsID)
		if err := s.fault(ctx, "read the strategy of an item", found.Scan(&row.Strategy, &row.Grouped, &row.Fenced, &row.MaxQuantity)); err != nil {
			return err
		}
		before := row.choice()
		choice, err := change(before)
		if err != nil {
			return err
		}
		if err := tx.setChoice(ctx, goodsID, choice); err != nil || reflect.DeepEqual(before, choice) {
			return err
		}
		return tx.appendSettings(ctx, goodsID, stock.ChoiceSet, stock.Settings{Choice: choice})
	})
}

// setChoice keeps no row of an item that chooses nothing: all rows are read all the
// time.
func (t *Tx) setChoice(ctx context.Context, goodsID int64, c stock.Choice) error {
	if c == (stock.Choice{}) {
		_, err := t.write(ctx, "clear the strategy of an item", deleteChoice, goodsID)
		return err
	}
	_, err := t.write(ctx, "set the strategy of an item", writeChoice, c.Strategy, c.Group, c.Fence, c.MaxQuantity, goodsID)
	return err
}

// strategyOff is a row of tb_strategy_off.
type strategyOff struct {
	Strategy string `gorm:"primaryKey"`
	Reason   string
}

func (strategyOff) TableName() string { return "tb_strategy_off" }

const switchOn = `DELETE FROM tb_strategy_off WHERE strategy = ?`

// SwitchOff stores that a strategy is off, with a reason of 1 to 200 characters, which replaces an
// earlier one.
func (s *Store) SwitchOff(ctx context.Context, strategy, reason string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		row := strategyOff{Strategy: strategy, Reason: reason}
		err := tx.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error
		return s.fault(ctx, "switch strategy off", err)
	})
}

// SwitchOn deletes the switch of a strategy.
func (s *Store) SwitchOn(ctx context.Context, strategy string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		_, err := tx.write(ctx, "switch strategy on", switchOn, strategy)
		return err
	})
}

// SwitchedOff returns the reasons of the strategies that are off, by name.
func (s *Store) SwitchedOff(ctx context.Context) (map[string]string, error) {
	var rows []strategyOff
	if err := s.db.WithContext(ctx).Find(&rows).Error; err != nil {
		return nil, s.fault(ctx, "read switches", err)
	}
	off := make(map[string]string, len(rows))
	for _, row := range rows {
		off[row.Strategy] = row.Reason
	}
	return off, nil
}

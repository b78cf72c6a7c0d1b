package repo

import (
	"context"

	"gorm.io/gorm/clause"
)

// strategyOff is a row of tb_strategy_off.
type strategyOff struct {
	Strategy string `gorm:"primaryKey"`
	Reason   string
}

// TableName is the table of the schema.
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

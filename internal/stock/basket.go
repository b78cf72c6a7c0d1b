package stock

import (
	"errors"
	"fmt"
)

// MaxLines is how many items one basket may have.
const MaxLines = 32

// Line is so many units of an item, at least 1.
type Line struct {
	GoodsID, Quantity int64
}

// LineError is why a basket was not sold: one of its items.
type LineError struct {
	GoodsID int64
	Err     error
}

func (e *LineError) Error() string { return fmt.Sprintf("item %d: %v", e.GoodsID, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// IsOver reports whether a reservation can never be confirmed any more: ErrReleased or ErrExpired.
func IsOver(err error) bool { return errors.Is(err, ErrReleased) || errors.Is(err, ErrExpired) }

package stock

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A stored request id is a client's key and, after a space, whose key it is. A key is
// visible ASCII and has no space, so that no key of one client is the stored id of
// another:
//
//	key           a purchase without a buyer
//	key uXXX…     a purchase of a buyer, by 22 characters of a hash of its id
//	key restock   what is done with a key otherwise, by its Tag
const tagSeparator = " "

// Tag is what a stored request id stands for that is not a purchase's.
type Tag string

// The tags.
const (
	RestockKey    Tag = "restock"
	CreationKey   Tag = "create"  // of an item
	CorrectionKey Tag = "correct" // of the stock
	SettingKey    Tag = "set"     // of a limit, a strategy or a sale
	ReturnKey     Tag = "return"  // of units of an order
	DamageKey     Tag = "damage"  // of the correction that takes the units of a return off again
	// FinalKey is of the row that ends a reservation, by its number. The ledger takes it once: a reservation ends once, in
	// one way.
	FinalKey Tag = "final"
	// LineKey is of the hold of a line of a basket, by its number, but for the first, which has the key of the basket.
	LineKey Tag = "line"
)

// Of is the stored request id of a key.
func (t Tag) Of(key string) string { return key + tagSeparator + string(t) }

// BuyerKey is the stored request id of a buyer's key; the buyer may be empty.
func BuyerKey(key, buyer string) string {
	if buyer == "" {
		return key
	}
	sum := sha256.Sum256([]byte(buyer))
	return key + tagSeparator + "u" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// IsLine reports whether a stored request id is that of a line of a basket.
func IsLine(requestID string) bool { return requestID == LineKey.Of(KeyOf(requestID)) }

// IsLineNumber reports whether a number is that of a line of a basket: the line's own follows the UUID of the basket.
func IsLineNumber(number string) bool {
	return len(number) > len("00000000-0000-0000-0000-000000000000")
}

// KeyOf is the client's key of a stored request id, and all that a client is shown of it.
func KeyOf(requestID string) string {
	key, _, _ := strings.Cut(requestID, tagSeparator)
	return key
}

// KeyRange bounds the stored request ids of a key, with and without a tag: they are from
// the first on and below the second.
func KeyRange(key string) (from, below string) { return key, key + "!" }

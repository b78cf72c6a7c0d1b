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
//	key                 a purchase without a buyer
//	key uXXX…           a purchase of a buyer, by 22 characters of a hash of its id
//	key restock         a restock
//	key create          the creation of an item
//	key correct         a correction of the stock
//	key set             a limit or a strategy
//	key return          the return of units of an order
//	key damage          the correction that takes the units of a return off again
//	number final        the one end of a reservation
//	number line         the hold of a line of a basket, but for the first, which has the key of the basket

const (
	tagSeparator = " "
	restockTag   = "restock"
	createTag    = "create"
	correctTag   = "correct"
	setTag       = "set"
	returnTag    = "return"
	damageTag    = "damage"
	finalTag     = "final"
	lineTag      = "line"
)

// BuyerKey is the stored request id of a buyer's key; the buyer may be empty.
func BuyerKey(key, buyer string) string {
	if buyer == "" {
		return key
	}
	sum := sha256.Sum256([]byte(buyer))
	return key + tagSeparator + "u" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// RestockKey is the stored request id of the key of a restock.
func RestockKey(key string) string { return key + tagSeparator + restockTag }

// CreationKey is the stored request id of the key of a creation.
func CreationKey(key string) string { return key + tagSeparator + createTag }

// CorrectionKey is the stored request id of the key of a correction.
func CorrectionKey(key string) string { return key + tagSeparator + correctTag }

// SettingKey is the stored request id of the key of a limit or a strategy.
func SettingKey(key string) string { return key + tagSeparator + setTag }

// ReturnKey is the stored request id of the key of a return.
func ReturnKey(key string) string { return key + tagSeparator + returnTag }

// DamageKey is the stored request id of the correction that belongs to the return of a key.
func DamageKey(key string) string { return key + tagSeparator + damageTag }

// FinalKey is the stored request id of the row that ends a reservation. The ledger takes it
// once: a reservation ends once, in one way.
func FinalKey(number string) string { return number + tagSeparator + finalTag }

// LineKey is the stored request id of a line of a basket, by its number.
func LineKey(number string) string { return number + tagSeparator + lineTag }

// IsLine reports whether a stored request id is that of a line of a basket.
func IsLine(requestID string) bool { return requestID == LineKey(KeyOf(requestID)) }

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

package room

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// ticket is what a text says that was signed.
type ticket struct {
	goodsID int64
	// order is the second in which the buyer joined, and its draw, as one number.
	order  string
	userID string
}

// signatureSize is how many bytes of the HMAC a ticket has: as many as cannot be guessed.
const signatureSize = 16

func (r *Room) sign(t ticket) string {
	content := strconv.FormatInt(t.goodsID, 10) + "." + t.order + "." + t.userID
	return base64.RawURLEncoding.EncodeToString(append(r.signature(content), content...))
}

// read verifies a ticket. It is one of an item that has a room.
func (r *Room) read(text string) (t ticket, ok bool) {
	signed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if r == nil || err != nil || len(signed) < signatureSize {
		return t, false
	}
	content := string(signed[signatureSize:])
	if !hmac.Equal(signed[:signatureSize], r.signature(content)) {
		return t, false
	}
	parts := strings.SplitN(content, ".", 3)
	t.goodsID, err = strconv.ParseInt(parts[0], 10, 64)
	if err != nil || len(parts) != 3 {
		return t, false
	}
	t.order, t.userID = parts[1], parts[2]
	return t, r.isOf(t.goodsID)
}

func (r *Room) signature(content string) []byte {
	mac := hmac.New(sha256.New, r.options.Secret)
	mac.Write([]byte(content))
	return mac.Sum(nil)[:signatureSize]
}

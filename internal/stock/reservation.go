package stock

import "time"

// State is that of a reservation.
type State string

// The states of a reservation. Nothing leaves the last three.
const (
	Held      State = "held"
	Confirmed State = "confirmed"
	Released  State = "released"
	Expired   State = "expired"
)

// MaxPaymentReference is the longest payment reference, in bytes.
const MaxPaymentReference = 128

// Reservation takes units of an item until it is confirmed, which makes an order of it, or
// until it is released or expires, which gives the units back.
type Reservation struct {
	// Number is also that of the order which a confirmation makes.
	Number   string
	GoodsID  int64
	Quantity int64
	// UserID is the buyer, or empty.
	UserID   string
	Strategy string
	// State is Expired as soon as the time is over, also where the units are not back yet.
	State State
	// TTL is how long it was to be held at first.
	TTL time.Duration
	// HeldAt and ExpiresAt are by the clock of the database: UTC, in microseconds.
	HeldAt, ExpiresAt time.Time
	// PaymentReference is that of its confirmation, or empty.
	PaymentReference string
}

// NotHeld is why a reservation that is not held any more cannot be changed: ErrConfirmed,
// ErrReleased or ErrExpired.
func (r Reservation) NotHeld() error {
	switch r.State {
	case Confirmed:
		return ErrConfirmed
	case Released:
		return ErrReleased
	default:
		return ErrExpired
	}
}

// Until is when a reservation expires that is extended at a time, by ttl from then on: no
// later than longest after it was held first, and no earlier than without.
func (r Reservation) Until(at time.Time, ttl, longest time.Duration) time.Time {
	until := at.Add(ttl)
	if last := r.HeldAt.Add(longest); until.After(last) {
		until = last
	}
	if until.Before(r.ExpiresAt) {
		return r.ExpiresAt
	}
	return until
}

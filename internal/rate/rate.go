// Package rate limits how often clients may ask.
package rate

import (
	"fmt"
	"hash/maphash"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Error rejects what a client has asked for too often.
type Error struct {
	// Wait is the time until it may ask again.
	Wait time.Duration
}

func (e *Error) Error() string { return fmt.Sprintf("too often by %s", e.Wait) }

// Rate is a sustained rate and a burst of at least 1. A rate of 0 means unlimited; any other is
// at least 0.001.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxClients bounds the clients that a limiter remembers, which take about 17 MiB then. The one that asked longest ago is
// forgotten: a rate limit cannot stop an attacker with that many addresses, and the other clients must still be served.
const maxClients = 100_000

// Limiter has a token bucket for each client.
type Limiter struct {
	rate    Rate
	seed    maphash.Seed
	buckets *lru.Cache[uint64, *rate.Limiter] // by a hash, so that names of any length take the same memory
}

// New returns nil, which means unlimited, where the rate is 0.
func New(r Rate) *Limiter {
	if r.PerSecond == 0 {
		return nil
	}
	buckets, _ := lru.New[uint64, *rate.Limiter](maxClients) // only of a negative size there is none
	return &Limiter{rate: r, seed: maphash.MakeSeed(), buckets: buckets}
}

// Take takes a token of a client, or returns the time until there is one.
func (l *Limiter) Take(client string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	key := maphash.String(l.seed, client)
	bucket, known := l.buckets.Get(key)
	if !known {
		bucket = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		if first, known, _ := l.buckets.PeekOrAdd(key, bucket); known {
			bucket = first
		}
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	return max(1, l.missing(bucket, now)) // none was taken, whatever was given back since
}

// GiveBack returns a token that was taken.
func (l *Limiter) GiveBack(client string, now time.Time) {
	if l == nil {
		return
	}
	if bucket, ok := l.buckets.Peek(maphash.String(l.seed, client)); ok {
		bucket.AllowN(now, -1)
	}
}

// Wait returns the time until a client has a token. It takes none.
func (l *Limiter) Wait(client string, now time.Time) time.Duration {
	bucket, ok := l.buckets.Peek(maphash.String(l.seed, client))
	if !ok {
		return 0
	}
	return l.missing(bucket, now)
}

// missing is the time until a bucket has a token.
func (l *Limiter) missing(bucket *rate.Limiter, now time.Time) time.Duration {
	return max(0, time.Duration((1-bucket.TokensAt(now))/l.rate.PerSecond*float64(time.Second)))
}

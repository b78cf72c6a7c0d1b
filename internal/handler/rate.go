package handler

import (
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// Limits are the rate limits of the public API: User of the purchases of one buyer, Address of
// the requests of one client address.
type Limits struct {
	User, Address Rate
}

// Rate is a sustained rate and a burst of at least 1. A rate of 0 means unlimited; any other is
// at least 0.001.
type Rate struct {
	PerSecond float64
	Burst     int
}

// mostKnown bounds the clients that a limiter remembers.
const mostKnown = 100_000

// limiter has a token bucket for each client. It stores when a bucket will be full again, and
// forgets full buckets.
type limiter struct {
	every time.Duration // until the next token
	whole time.Duration // until an empty bucket is full
	seed  maphash.Seed

	mu    sync.Mutex
	full  map[uint64]time.Time // by a hash, so that names of any length take the same memory
	swept time.Time
}

// newLimiter returns nil, which means unlimited, where the rate is 0.
func newLimiter(r Rate) *limiter {
	if r.PerSecond == 0 {
		return nil
	}
	every := time.Duration(float64(time.Second) / r.PerSecond)
	return &limiter{
		every: every, whole: every * time.Duration(r.Burst),
		seed: maphash.MakeSeed(), full: make(map[uint64]time.Time),
	}
}

// take takes a token of a client, or returns the time until there is one.
func (l *limiter) take(client string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	key := maphash.String(l.seed, client)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	full, known := l.full[key]
	if !known || full.Before(now) {
		full = now
	}
	full = full.Add(l.every)
	if wait := full.Sub(now) - l.whole; wait > 0 {
		return wait
	}
	if !known {
		l.makeRoom()
	}
	l.full[key] = full
	return 0
}

// giveBack returns a token that was taken.
func (l *limiter) giveBack(client string) {
	key := maphash.String(l.seed, client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, ok := l.full[key]; ok {
		l.full[key] = full.Add(-l.every)
	}
}

// wait returns the time until a client has a token. It takes none.
func (l *limiter) wait(client string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, ok := l.full[maphash.String(l.seed, client)]
	if !ok || full.Before(now) {
		return 0
	}
	return max(0, full.Add(l.every).Sub(now)-l.whole)
}

// sweep forgets full buckets, once a second.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.full, func(_ uint64, full time.Time) bool { return !full.After(now) })
}

// makeRoom forgets any client where too many are known: a rate limit cannot stop an attacker
// with that many addresses, and the other clients must still be served.
func (l *limiter) makeRoom() {
	if len(l.full) < mostKnown {
		return
	}
	for key := range l.full {
		delete(l.full, key)
		return
	}
}

// limitAddresses rejects requests beyond the rate of their address before it reads them. A shed
// purchase does not count, so that its retry is not throttled.
func limitAddresses(l *limiter, observer Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if l == nil {
			return
		}
		address := network(c.ClientIP())
		if wait := l.take(address, time.Now()); wait > 0 {
			observer.RateLimited(byAddress)
			answer(c, tooOften("this address asks", wait))
			return
		}
		c.Next()
		if c.GetBool(shedKey) {
			l.giveBack(address)
		}
	}
}

// network is the unit of address limits: an IPv4 address, or the /64 of an IPv6 address, all of
// which one client usually has.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Unmap().Is4() {
		return address
	}
	prefix, _ := ip.WithZone("").Prefix(64) // never fails for IPv6
	return prefix.String()
}

func tooOften(subject string, wait time.Duration) problem {
	seconds := int(math.Ceil(wait.Seconds()))
	p := newProblem(http.StatusTooManyRequests, "rate-limited", "Too many requests").
		detail("%s too often; try again in %d s", subject, seconds)
	p.retryAfter = strconv.Itoa(seconds + rand.N(jitter))
	return p
}

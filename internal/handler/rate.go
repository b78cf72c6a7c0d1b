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

// Limits bound how often somebody may ask.
type Limits struct {
	// User bounds the purchases of one user_id, Address the requests of one
	// address.
	User, Address Rate
}

// Rate is so many a second for as long as one likes, and Burst at once, at least
// 1. A rate of 0 sets no limit; any other is at least 0.001.
type Rate struct {
	PerSecond float64
	Burst     int
}

// mostKnown bounds how many somebodies a limiter remembers, and so its memory.
const mostKnown = 100_000

// limiter has a bucket of tokens for everybody. Of a bucket it is enough to know
// when it will be full again; one that is full is not remembered at all.
type limiter struct {
	every time.Duration // a token comes back in that time
	whole time.Duration // a bucket that is empty is full again after that time
	seed  maphash.Seed

	mu    sync.Mutex
	full  map[uint64]time.Time // by the hash of who it is, so that names of any length take the same room
	swept time.Time
}

// newLimiter returns nil, which limits nobody, where the rate is 0.
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

// take takes a token of who, or tells how long it takes until there is one.
func (l *limiter) take(who string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	key := maphash.String(l.seed, who)
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

// wait tells how long it takes until who has a token. It takes none.
func (l *limiter) wait(who string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, ok := l.full[maphash.String(l.seed, who)]
	if !ok || full.Before(now) {
		return 0
	}
	return max(0, full.Add(l.every).Sub(now)-l.whole)
}

// sweep forgets those whose buckets are full again, once a second.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.full, func(_ uint64, full time.Time) bool { return !full.After(now) })
}

// makeRoom forgets anybody where too many are known: somebody who can be that
// many is not to be held off this way, and the others must still be served.
func (l *limiter) makeRoom() {
	if len(l.full) < mostKnown {
		return
	}
	for key := range l.full {
		delete(l.full, key)
		return
	}
}

// limitAddresses turns those away who ask too often, before anything of their
// request is read.
func limitAddresses(l *limiter, heard Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if l == nil {
			return
		}
		if wait := l.take(network(c.ClientIP()), time.Now()); wait > 0 {
			heard.RateLimited(byAddress)
			answer(c, tooOften("this address asks", wait))
		}
	}
}

// network is whom an address is counted as. Whoever has one address of IPv6 has
// the 64 bits of them.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Unmap().Is4() {
		return address
	}
	prefix, _ := ip.WithZone("").Prefix(64) // 64 bits an IPv6 address has
	return prefix.String()
}

func tooOften(who string, wait time.Duration) problem {
	seconds := int(math.Ceil(wait.Seconds()))
	p := newProblem(http.StatusTooManyRequests, "rate-limited", "Too many requests").
		detail("%s too often; try again in %d s", who, seconds)
	p.retryAfter = strconv.Itoa(seconds + rand.N(jitter))
	return p
}

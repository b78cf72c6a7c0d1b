// Package rate limits how often clients may ask.
package rate

import (
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"
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

// maxClients bounds the clients that a limiter remembers.
const maxClients = 100_000

// Limiter has a token bucket for each client. It stores when a bucket will be full again, and
// forgets full buckets.
type Limiter struct {
	every time.Duration // until the next token
	whole time.Duration // until an empty bucket is full
	seed  maphash.Seed

	mu    sync.Mutex
	full  map[uint64]time.Time // by a hash, so that names of any length take the same memory
	swept time.Time
}

// New returns nil, which means unlimited, where the rate is 0.
func New(r Rate) *Limiter {
	if r.PerSecond == 0 {
		return nil
	}
	every := time.Duration(float64(time.Second) / r.PerSecond)
	return &Limiter{
		every: every, whole: every * time.Duration(r.Burst),
		seed: maphash.MakeSeed(), full: make(map[uint64]time.Time),
	}
}

// Take takes a token of a client, or returns the time until there is one.
func (l *Limiter) Take(client string, now time.Time) (wait time.Duration) {
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

// GiveBack returns a token that was taken.
func (l *Limiter) GiveBack(client string) {
	if l == nil {
		return
	}
	key := maphash.String(l.seed, client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, ok := l.full[key]; ok {
		l.full[key] = full.Add(-l.every)
	}
}

// Wait returns the time until a client has a token. It takes none.
func (l *Limiter) Wait(client string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, ok := l.full[maphash.String(l.seed, client)]
	if !ok {
		return 0
	}
	return max(0, full.Add(l.every).Sub(now)-l.whole)
}

// sweep forgets full buckets, once a second.
func (l *Limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.full, func(_ uint64, full time.Time) bool { return !full.After(now) })
}

// makeRoom forgets any client where too many are known: a rate limit cannot stop an attacker
// with that many addresses, and the other clients must still be served.
func (l *Limiter) makeRoom() {
	if len(l.full) < maxClients {
		return
	}
	for key := range l.full {
		delete(l.full, key)
		return
	}
}

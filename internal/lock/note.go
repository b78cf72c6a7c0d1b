package lock

import (
	"context"
	"strconv"
	"time"
)

// Note is a step on the way to a lease, or in its life, as the lock itself sees it.
type Note struct {
	// At is when the step began, Took how long it lasted; 0: a moment.
	At   time.Time
	Took time.Duration
	What NoteKind
	// Key is the key or node that stands for the name; of Placed.
	Key string
	// TTL is what the backend was asked for, from At on; of Expires and Renewed.
	TTL time.Duration
	// Left is what was left of the lease, by the holder's clock, when the renewal began.
	Left time.Duration
	// By is the master of a vote, or what woke a waiter.
	By string
	// Err is why a renewal or a vote failed.
	Err error
}

// NoteKind is a kind of step.
type NoteKind string

// The kinds of steps.
const (
	// Placed: the backend has a key or a node for this Acquire or its lease.
	Placed NoteKind = "placed"
	// Expires: the lease ends one TTL after At unless it is renewed.
	Expires    NoteKind = "expires"
	Renewed    NoteKind = "renewed"
	NotRenewed NoteKind = "not-renewed"
	// VotedFor, VotedAgainst and NoVote are the answers of one of several masters.
	VotedFor     NoteKind = "voted-for"
	VotedAgainst NoteKind = "voted-against"
	NoVote       NoteKind = "no-vote"
	// Woken: a waiter looks again, because of By.
	Woken NoteKind = "woken"
)

// What wakes a waiter.
const (
	ByPubSub  = "pub/sub"
	ByWatch   = "watch"
	ByTimeout = "timeout" // the bounded fallback
)

type notesKey struct{}

// WithNotes has the Acquire under the context tell its steps. note is called from any
// goroutine, also after the Acquire has returned, and must be quick.
func WithNotes(ctx context.Context, note func(Note)) context.Context {
	return context.WithValue(ctx, notesKey{}, note)
}

// Tell passes a step on, where the context was made for that.
func Tell(ctx context.Context, n Note) {
	if note, ok := ctx.Value(notesKey{}).(func(Note)); ok {
		note(n)
	}
}

// TellVote tells what a master, counted from 1, answered to a request for its vote.
func TellVote(ctx context.Context, master int, asked time.Time, won bool, err error) {
	vote := Note{At: asked, Took: time.Since(asked), What: VotedAgainst, By: strconv.Itoa(master), Err: err}
	switch {
	case err != nil:
		vote.What = NoVote
	case won:
		vote.What = VotedFor
	}
	Tell(ctx, vote)
}

// Follow has a lease tell its expiry, now, and its renewals, from now on.
func (h *Held) Follow(note func(Note)) {
	if h.behind != nil {
		h.behind.Follow(note)
		return
	}
	h.mu.Lock()
	h.followers = append(h.followers, note)
	expires := h.expires
	h.mu.Unlock()
	if expires.TTL > 0 {
		note(expires)
	}
}

// ExpiresAfter states that the backend ends the lease one TTL after it was asked for; 0: never.
func (h *Held) ExpiresAfter(asked time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expires = Note{At: asked, What: Expires, TTL: ttl}
}

func (h *Held) tell(n Note) {
	h.mu.Lock()
	if n.What == Renewed {
		h.expires.At = n.At
	}
	followers := h.followers
	h.mu.Unlock()
	for _, note := range followers {
		note(n)
	}
}

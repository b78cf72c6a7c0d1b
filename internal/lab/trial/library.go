// Package trial asks lock libraries that people use the questions that the lab asks of stockd's own locks: each on real
// servers, with its faults made by the lab, and judged from the recorded history alone.
package trial

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// Library is a lock as it is published, used as its documents say.
type Library struct {
	Name string `json:"name"`
	// Module is that of the library; empty for stockd's own locks, and for what blogs show without one.
	Module string `json:"module,omitempty"`
	// Version is that of the module in the program that asked.
	Version string `json:"version,omitempty"`
	// Server is the backend that it needs, as servers.Backends name them, or mysql.
	Server string `json:"server"`
	Docs   string `json:"docs,omitempty"`
	// Promises are its own words, by the question that they answer.
	Promises map[string]string `json:"promises,omitempty"`
	// Release are bytes of a release that does not contain the name.
	Release string `json:"release,omitempty"`

	Open opener `json:"-"`
}

// opener connects a client of its own, which its holders share, and returns how it is closed.
type opener func(Conn) (l lock.Locker, closeAll func() error, err error)

// list has the libraries, those of one server together, stockd's own beside them.
//
//go:embed libraries.json
var list []byte

// Libraries are those on trial.
func Libraries() (all []Library) {
	if err := json.Unmarshal(list, &all); err != nil {
		panic(err) // it is part of the program
	}
	adapters := adapters()
	for i := range all {
		all[i].Version = servers.Linked(all[i].Module)
		if name, own := strings.CutPrefix(all[i].Name, "stockd "); own {
			all[i].own(name)
		} else {
			all[i].Open = adapters[all[i].Name]
		}
		if all[i].Server == "database" {
			again := all[i]
			again.Name, again.Server = again.Name+" on MySQL", mysql
			all = append(all, again)
		}
	}
	return all
}

// Find returns the library of a name, also a lock of stockd's that is not on trial.
func Find(name string) (Library, error) {
	all := Libraries()
	if at := slices.IndexFunc(all, func(l Library) bool { return l.Name == name }); at >= 0 {
		return all[at], nil
	}
	entry, err := registry.Find(strings.TrimPrefix(name, "stockd "))
	if err != nil {
		return Library{}, fmt.Errorf("%q is not on trial", name)
	}
	l := Library{Name: name, Server: string(entry.Needs[0])}
	l.own(entry.Name)
	return l, nil
}

// own makes it a lock of stockd's, which promises what its entry guarantees.
func (l *Library) own(name string) {
	entry, err := registry.Find(name)
	g := entry.Guarantees
	l.Docs, l.Promises = "locks.md", make(map[string]string)
	for _, promise := range []struct {
		given            bool
		words, questions string
	}{
		{g.ExclusiveAcrossReplicas, "exclusive across replicas", "crowd"},
		{g.SurvivesCrash, "survives a crashed holder, and leaves nothing behind", "dies acquire-reply release-reply cancelled"},
		{g.Renews, "renews", "outlasts renew-reply"},
		{g.Fences, "fencing token", "paused token"},
		{g.SignalsLoss, "signals the loss", "taken"},
		{g.ReleasesOnlyItsOwn, "releases only its own", "late-release"},
	} {
		for question := range strings.FieldsSeq(promise.questions) {
			if promise.given {
				l.Promises[question] = promise.words
			}
		}
	}
	l.Open = func(c Conn) (lock.Locker, func() error, error) {
		if err != nil {
			return nil, nil, err
		}
		return c.own(entry)
	}
}

// Conn is how one client reaches its server.
type Conn struct {
	servers.Conn

	// Lease is for how long a name stays taken when its holder is silent.
	Lease time.Duration
	// Numbers has those of the holders of stockd's redlock.
	Numbers servers.Database
}

// held is a lock of a library as a lease. It knows of a loss where the library tells of it.
type held struct {
	ctx     context.Context
	lose    context.CancelCauseFunc
	token   int64
	release func(ctx context.Context) error
	// extend prolongs the hold; nil where its user need not.
	extend func(ctx context.Context) error
	// until is the end of the hold by the library's own account; nil where it gives none.
	until func() time.Time
	// alive reports whether the session stands; nil where there is none to ask.
	alive func() bool
}

func (h *held) Token() uint64            { return uint64(h.token) } //nolint:gosec // a revision
func (h *held) Context() context.Context { return h.ctx }

// Release also asks the library where the hold was lost: what that frees is a question.
func (h *held) Release(ctx context.Context) error {
	h.lose(context.Canceled)
	return h.release(ctx)
}

// watch does what a careful user writes around the library: it extends the hold each third of its time, and stops at
// the first failure, at the end that the library tells, or with the session.
func (h *held) watch(lease time.Duration) {
	for next := time.Now().Add(lease / 3); h.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		switch {
		case h.until != nil && time.Now().After(h.until()), h.alive != nil && !h.alive():
			h.lose(lock.ErrLost)
		case h.extend != nil && time.Now().After(next):
			next = time.Now().Add(lease / 3)
			stop := func() bool { return true }
			if h.until != nil { // the extension may hang
				stop = time.AfterFunc(time.Until(h.until()), func() { h.lose(lock.ErrLost) }).Stop
			}
			if err := h.extend(h.ctx); err != nil {
				h.lose(fmt.Errorf("%w: %w", lock.ErrLost, err))
			}
			stop()
		}
	}
}

// locker is a library as stockd's contract has locks, so that the lab can record what it grants.
type locker struct {
	lease   time.Duration
	acquire func(ctx context.Context, name string) (*held, error)
}

// Acquire asks the library.
func (l locker) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	h, err := l.acquire(ctx, name)
	if err != nil {
		return nil, errors.Join(lock.ErrNotAcquired, err, context.Cause(ctx))
	}
	h.ctx, h.lose = context.WithCancelCause(context.Background())
	go h.watch(l.lease)
	return h, nil
}

package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// RepeatedKey is the number of suppressed lines of its kind that a line counts.
const RepeatedKey = "repeated"

// interval is the minimum time between two written lines of a kind.
const interval = time.Second

// maxKinds bounds the kinds that are distinguished at a time; all others count as one.
const maxKinds = 256

// Bounded limits the rate of repeated warnings and errors. It writes the first line of each kind
// at once, and then the last line of every second with the number of suppressed ones, so that
// written lines and numbers add up to all lines. A kind is a message with its problem, backend
// and strategy. Lines of lower levels pass. Close it.
type Bounded struct {
	slog.Handler

	kinds *kinds
}

// Bound limits the lines that a handler writes.
func Bound(inner slog.Handler) Bounded {
	k := &kinds{held: make(map[kind]*held)}
	return Bounded{Handler{inner, k.handle}, k}
}

// Close writes the held lines. Later lines are written at once.
func (b Bounded) Close() { b.kinds.close() }

// kind identifies lines that count as repetitions.
type kind struct{ message, problem, backend, strategy string }

func kindOf(r slog.Record) kind {
	k := kind{message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "problem":
			k.problem = a.Value.String()
		case "backend":
			k.backend = a.Value.String()
		case "strategy":
			k.strategy = a.Value.String()
		}
		return true
	})
	return k
}

// line is a record and its handler.
type line struct {
	handler slog.Handler
	ctx     context.Context //nolint:containedctx // it identifies the request
	record  slog.Record
}

// write writes a line that counts others. There is nowhere to report an error.
func (l line) write(others int) {
	if others > 0 {
		l.record.AddAttrs(slog.Int(RepeatedKey, others))
	}
	_ = l.handler.Handle(l.ctx, l.record)
}

// held are the unwritten lines of a kind.
type held struct {
	count int
	last  line
	next  *time.Timer
}

// kinds has an entry for each kind with a line written within the interval.
type kinds struct {
	mu     sync.Mutex
	held   map[kind]*held
	closed bool
}

// handle writes the line now, or within a second, or counts it.
func (k *kinds) handle(ctx context.Context, behind slog.Handler, r slog.Record) error {
	if r.Level >= slog.LevelWarn && k.hold(line{behind, context.WithoutCancel(ctx), r}) {
		return nil
	}
	return behind.Handle(ctx, r)
}

// hold keeps a line if one of its kind was written within the interval.
func (k *kinds) hold(l line) bool {
	of := kindOf(l.record)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	h, ok := k.held[of]
	if !ok && len(k.held) >= maxKinds {
		of = kind{}
		h, ok = k.held[of]
	}
	if !ok {
		k.held[of] = &held{next: time.AfterFunc(interval, func() { k.flush(of) })}
		return false
	}
	h.count++
	h.last = line{l.handler, l.ctx, l.record.Clone()}
	return true
}

// flush ends an interval of a kind: it writes the held line and begins another interval, or
// forgets the kind.
func (k *kinds) flush(of kind) {
	k.mu.Lock()
	h, ok := k.held[of]
	if !ok || h.count == 0 {
		delete(k.held, of)
		k.mu.Unlock()
		return
	}
	last, others := h.last, h.count-1
	h.last, h.count = line{}, 0
	h.next.Reset(interval)
	k.mu.Unlock()
	last.write(others)
}

func (k *kinds) close() {
	k.mu.Lock()
	all := k.held
	k.held, k.closed = nil, true
	k.mu.Unlock()
	for _, h := range all {
		if h.count > 0 {
			h.last.write(h.count - 1)
		}
	}
}

package live

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// message is one event as a client gets it.
type message struct {
	ID   uint64
	Kind string
	Data json.RawMessage
}

// event is something that happened, and what it changes of the state.
type event interface {
	kind() string
	apply(state *State)
}

// The bounds of what the hub keeps for clients that are behind.
const (
	maxMessages = 512
	maxBytes    = 1 << 20
)

// hub has the state of the page and the last events that led to it. A client has a place
// in them and no buffer of its own: one that is too slow, or was away for too long, finds
// its place gone and gets the state as a whole.
//
//  1. A client that reconnects with the id of its last event gets what it missed, in order and once.
//  2. A client whose place is gone gets one snapshot, and then what follows it.
//  3. What is kept is bounded, however many clients there are and however slow they are.
type hub struct {
	mu      sync.Mutex
	state   State
	last    uint64    // the id of the newest message
	kept    []message // the newest ones, whose ids follow each other
	bytes   int
	changed chan struct{} // closed with each event, and made anew
}

// newHub begins with ids that no earlier process has given: a client of that one must not
// take its own place for one of this hub.
func newHub() *hub {
	return &hub{last: uint64(time.Now().UnixMicro()), changed: make(chan struct{})}
}

// publish changes the state and passes the event on.
func (h *hub) publish(e event) {
	data := encoded(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	e.apply(&h.state)
	h.last++
	h.kept = append(h.kept, message{ID: h.last, Kind: e.kind(), Data: data})
	h.bytes += len(data)
	drop := 0
	for len(h.kept)-drop > maxMessages || h.bytes > maxBytes && drop < len(h.kept) {
		h.bytes -= len(h.kept[drop].Data)
		drop++
	}
	if drop > 0 { // copied, so that what is dropped is not kept in memory behind the slice
		h.kept = slices.Clone(h.kept[drop:])
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// look reads the state while nothing changes it.
func (h *hub) look(do func(*State)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(&h.state)
}

// next waits for what comes after an id. Where that is not kept any more, or is no id of
// this hub, it is a snapshot.
func (h *hub) next(ctx context.Context, after uint64) ([]message, error) {
	for {
		list, changed := h.after(after)
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *hub) after(id uint64) (list []message, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == h.last {
		return nil, h.changed
	}
	oldest := h.last + 1 - uint64(len(h.kept))
	if id > h.last || id+1 < oldest {
		return []message{{ID: h.last, Kind: "snapshot", Data: encoded(h.state)}}, nil
	}
	return slices.Clone(h.kept[id+1-oldest:]), nil
}

func encoded(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is plain data of this package
	}
	return data
}

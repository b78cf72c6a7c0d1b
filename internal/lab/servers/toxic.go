package servers

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// toxic is what one direction of all links of a proxy passes through. Everything
// that a proxy of ours can do is in this one, for two reasons: a dropped reply
// concerns both directions, of which toxiproxy's own toxics see one each; and
// toxics that come and go while links are in use can wait for each other for ever.
type toxic struct {
	link  func() *link
	pass  passing
	reply bool // it is the direction of replies
}

// passing does with a piece what is to be done, and reports whether the link goes
// on.
type passing func(l *link, piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool

// buffered is how many pieces may be on their way on a slow link.
const buffered = 1024

// GetBufferSize makes it a toxics.BufferedToxic.
func (*toxic) GetBufferSize() int { return buffered }

// NewState makes it a toxics.StatefulToxic: each link has its own state.
func (t *toxic) NewState() any { return t.link() }

// Pipe passes one direction of a link on until the link ends.
func (t *toxic) Pipe(stub *toxics.ToxicStub) {
	l, ok := stub.State.(*link)
	for ok && t.next(l, stub) {
	}
	stub.Close()
	l.end()
	// The reader of the connection would block on a piece for ever.
	for range stub.Input {
	}
}

func (t *toxic) next(l *link, stub *toxics.ToxicStub) bool {
	select {
	case <-l.ended:
		return false
	case piece := <-stub.Input:
		return piece != nil && l.delay(piece, t.reply) && t.pass(l, piece, stub.Output)
	}
}

// link is one connection, in both directions.
type link struct {
	proxy *Proxy
	ended chan struct{}
	once  sync.Once
	mute  atomic.Bool
	// awaits is the point for which the next reply is meant, or nil.
	awaits atomic.Pointer[Trigger]
	// before is the end of what was sent up to now, with the proxy's mutex.
	before []byte
}

// end ends both directions. It does not wait.
func (l *link) end() {
	l.once.Do(func() {
		close(l.ended)
		go l.proxy.forget(l) // the caller may hold the mutex
	})
}

// delay waits until a piece is due, and reports whether the link is still there.
func (l *link) delay(piece *stream.StreamChunk, reply bool) bool {
	if late := time.Duration(l.proxy.delay.Load()) - time.Since(piece.Timestamp); late > 0 {
		select {
		case <-time.After(late):
		case <-l.ended:
			return false
		}
	}
	for ice := l.proxy.ice(reply); ice != nil; ice = l.proxy.ice(reply) {
		select {
		case <-ice:
		case <-l.ended:
			return false
		}
	}
	return true
}

func (l *link) send(piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool {
	select {
	case <-l.ended: // and nothing may pass any more, even where it could
		return false
	default:
	}
	select {
	case to <- piece:
		return true
	case <-l.ended:
		return false
	}
}

// request passes on what a client sends.
func (l *link) request(piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool {
	if l.mute.Load() {
		return true
	}
	point := l.proxy.meet(l, piece.Data)
	if point == nil {
		return l.send(piece, to)
	}
	switch point.Do {
	case Lose:
		point.reach()
		return false
	case Hold:
		return point.hold(l) && l.send(piece, to)
	default:
		l.awaits.Store(point) // before the server can have an answer
		return l.send(piece, to) && (point.Do != LoseReply || l.lost(point))
	}
}

// answerWithin bounds the wait for an answer that is to be lost.
const answerWithin = time.Second

// lost waits until the server has acted: its answer is there, and lost. The
// client must not see the end before, or its next request could overtake what the
// server has not read yet. The link does not go on.
func (l *link) lost(point *Trigger) bool {
	select {
	case <-point.reached:
	case <-l.ended:
	case <-time.After(answerWithin):
		point.reach()
	}
	return false
}

// reply passes on what a server answers.
func (l *link) reply(piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool {
	if l.mute.Load() {
		return true
	}
	point := l.awaits.Swap(nil)
	if point == nil {
		return l.send(piece, to)
	}
	switch point.Do {
	case LoseReply:
		point.reach()
		return false
	case MuteReply:
		l.mute.Store(true)
		point.reach()
		return true
	default:
		return point.hold(l) && l.send(piece, to)
	}
}

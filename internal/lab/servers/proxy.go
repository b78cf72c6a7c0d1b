package servers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// Proxy stands before a TCP server on loopback, and passes on what both sides send
// until a method or a rule changes that.
type Proxy struct {
	// Address is where to connect to instead of the target.
	Address string

	proxy *toxiproxy.Proxy
	delay atomic.Int64 // a time.Duration

	mu          sync.Mutex
	triggers    []*Trigger     // armed, and not reached yet
	links       map[*link]bool // that are open
	newest      *link          // whose replies have no way yet
	hang        bool
	frozen      chan struct{} // closed by Thaw; nil where it is not frozen
	repliesOnly bool          // requests pass while it is frozen
}

// NewProxy puts a proxy before a target. It must be closed.
func NewProxy(target string) (p *Proxy, err error) {
	err = onFreePort(func(port int) error {
		p = &Proxy{Address: Loopback(port), links: make(map[*link]bool)}
		server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
		p.proxy = toxiproxy.NewProxy(server, p.Address, p.Address, target)
		if err := errors.Join(p.install(stream.Upstream, p.open, (*link).request), p.install(stream.Downstream, p.way, (*link).reply)); err != nil {
			return err
		}
		return p.proxy.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("put a proxy before %s: %w", target, err)
	}
	return p, nil
}

// install puts our toxic into one direction of the links to come. That is done
// before there are any: toxiproxy makes toxics from JSON, and what ours need is
// no JSON.
func (p *Proxy) install(direction stream.Direction, link func() *link, pass passing) error {
	const kind = "stockd"
	toxics.Register(kind, new(toxic))
	wrapper, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%q,"stream":%q}`, kind, direction)))
	if err != nil {
		return err
	}
	ours, ok := wrapper.Toxic.(*toxic)
	if !ok {
		return fmt.Errorf("the toxic is a %T", wrapper.Toxic)
	}
	ours.link, ours.pass, ours.reply = link, pass, direction == stream.Downstream
	return nil
}

// Close ends the proxy and its connections. Closing twice is harmless.
func (p *Proxy) Close() { p.Cut() }

// Cut ends all connections and rejects new ones, until Mend.
func (p *Proxy) Cut() {
	p.proxy.Stop()
	p.Break()
}

// Mend ends a Cut.
func (p *Proxy) Mend() error {
	if err := p.proxy.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("mend the link: %w", err)
	}
	return nil
}

// Break ends all connections. New ones pass.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end()
	}
}

// Redirect ends all connections and passes new ones to another target.
func (p *Proxy) Redirect(target string) error {
	p.Cut()
	if err := p.proxy.Update(&toxiproxy.Proxy{Listen: p.Address, Upstream: target, Enabled: true}); err != nil {
		return fmt.Errorf("redirect the link to %s: %w", target, err)
	}
	return nil
}

// Hang ends all connections. New ones hang: they are accepted, and neither requests
// nor replies pass on them, not even after Hang(false).
func (p *Proxy) Hang(hang bool) {
	p.mu.Lock()
	p.hang = hang
	p.mu.Unlock()
	if hang {
		p.Break()
	}
}

// Slow delays both directions by a duration; 0 ends that.
func (p *Proxy) Slow(delay time.Duration) { p.delay.Store(int64(delay)) }

// Freeze queues what both sides send, in order, until Thaw. Connections stay, and
// new ones are accepted.
func (p *Proxy) Freeze() { p.freeze(false) }

// FreezeReplies queues what the server sends, in order, until Thaw. The server goes on
// receiving and acting.
func (p *Proxy) FreezeReplies() { p.freeze(true) }

func (p *Proxy) freeze(repliesOnly bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repliesOnly = repliesOnly; p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw sends what Freeze or FreezeReplies has queued.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// ice is what to wait for before a request or a reply may pass, or nil.
func (p *Proxy) ice(reply bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repliesOnly && !reply {
		return nil
	}
	return p.frozen
}

func (p *Proxy) open() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &link{proxy: p, ended: make(chan struct{})}
	l.hung.Store(p.hang)
	p.links[l], p.newest = true, l
	return l
}

// way is the state of the connection that was opened last: toxiproxy makes the
// two directions of a connection one after the other, and of one connection after
// the other.
func (p *Proxy) way() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}

// answer notes what the server answers on a link.
func (p *Proxy) answer(l *link, sent []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.prepared.reply(sent)
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

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

type link struct {
	proxy *Proxy
	ended chan struct{}
	once  sync.Once
	hung  atomic.Bool
	// awaits is the trigger for which the next reply is meant, or nil.
	awaits atomic.Pointer[Trigger]
	// before is the end of what was sent up to now, with the proxy's mutex.
	before []byte
	// prepared has the statements that the client has prepared, with the proxy's mutex.
	prepared preparedTexts
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

func (l *link) request(piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool {
	if l.hung.Load() {
		return true
	}
	trigger := l.proxy.meet(l, piece.Data)
	if trigger == nil {
		return l.send(piece, to)
	}
	switch trigger.Do {
	case Lose:
		trigger.reach()
		return false
	case Hold:
		return trigger.hold(l) && l.send(piece, to)
	default:
		l.awaits.Store(trigger) // before the server can have an answer
		return l.send(piece, to) && (trigger.Do != LoseReply || l.lost(trigger))
	}
}

// answerWithin bounds the wait for an answer that is to be lost.
const answerWithin = time.Second

// lost waits until the server has acted: its answer is there, and lost. The
// client must not see the end before, or its next request could overtake what the
// server has not read yet. The link does not go on.
func (l *link) lost(trigger *Trigger) bool {
	select {
	case <-trigger.reached:
	case <-l.ended:
	case <-time.After(answerWithin):
		trigger.reach()
	}
	return false
}

func (l *link) reply(piece *stream.StreamChunk, to chan<- *stream.StreamChunk) bool {
	if l.hung.Load() {
		return true
	}
	l.proxy.answer(l, piece.Data)
	trigger := l.awaits.Swap(nil)
	if trigger == nil {
		return l.send(piece, to)
	}
	switch trigger.Do {
	case LoseReply:
		trigger.reach()
		return false
	case HangReply:
		l.hung.Store(true)
		trigger.reach()
		return true
	default:
		return trigger.hold(l) && l.send(piece, to)
	}
}

// preparedTexts are the statements that a client of MySQL has prepared on a link. From then on it sends their
// numbers alone, and rules are to know the statements all the same. It needs the proxy's mutex.
type preparedTexts struct {
	asked []byte            // the text that is being prepared, or nil
	texts map[uint32][]byte // by number
}

// The bytes of a packet of MySQL: its length, its number in an exchange, and what it is. A number of a statement
// follows, or its text.
const (
	mysqlHeader   = 4
	mysqlPrepare  = 0x16
	mysqlExecute  = 0x17
	mysqlPrepared = 0x00
	mysqlNumber   = mysqlHeader + 1
	mysqlNumbered = mysqlNumber + 4
)

// request is what rules are to look at in a request: the text of a statement in place of its number, and nothing
// where it is only being prepared.
func (p *preparedTexts) request(sent []byte) []byte {
	if len(sent) < mysqlNumbered || !isPacket(sent) {
		return sent
	}
	switch sent[mysqlHeader] {
	case mysqlPrepare:
		p.asked = slices.Clone(sent[mysqlNumber:])
		return nil
	case mysqlExecute:
		return slices.Concat(p.texts[binary.LittleEndian.Uint32(sent[mysqlNumber:])], sent)
	default:
		return sent
	}
}

// reply takes the number of the statement that is being prepared.
func (p *preparedTexts) reply(sent []byte) {
	if p.asked == nil || len(sent) < mysqlNumbered {
		return
	}
	if sent[mysqlHeader] == mysqlPrepared {
		if p.texts == nil {
			p.texts = make(map[uint32][]byte)
		}
		p.texts[binary.LittleEndian.Uint32(sent[mysqlNumber:])] = p.asked
	}
	p.asked = nil
}

// isPacket reports that a request is one packet of MySQL, the first one of its exchange.
func isPacket(sent []byte) bool {
	length := int(sent[0]) | int(sent[1])<<8 | int(sent[2])<<16
	return length == len(sent)-mysqlHeader && sent[3] == 0
}

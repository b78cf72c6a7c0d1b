package servers

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands before a TCP server on loopback, and passes on what both sides send
// until a method or a rule changes that.
type Proxy struct {
	// Address is where to connect to instead of the target.
	Address string

	delay atomic.Int64 // a time.Duration

	mu          sync.Mutex
	target      string
	listener    net.Listener   // nil while it is cut
	triggers    []*Trigger     // armed, and not reached yet
	links       map[*link]bool // that are open
	hang        bool
	frozen      chan struct{} // closed by Thaw; nil where it is not frozen
	repliesOnly bool          // requests pass while it is frozen
}

// NewProxy puts a proxy before a target. It must be closed.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, links: make(map[*link]bool)}
	err := onFreePort(func(port int) error {
		p.Address = Loopback(port)
		return p.Mend()
	})
	if err != nil {
		return nil, fmt.Errorf("put a proxy before %s: %w", target, err)
	}
	return p, nil
}

// Close ends the proxy and its connections. Closing twice is harmless.
func (p *Proxy) Close() { p.Cut() }

// Cut ends all connections and rejects new ones, until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close() // it is open
		p.listener = nil
	}
	p.mu.Unlock()
	p.Break()
}

// Mend ends a Cut.
func (p *Proxy) Mend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.Address)
	if err != nil {
		return fmt.Errorf("mend the link: %w", err)
	}
	p.listener = listener
	go p.accept(listener)
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
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	return p.Mend()
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

// accept takes connections until the proxy is cut.
func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go p.connect(listener, client)
	}
}

// connect makes the other half of a link, and passes on what both sides send until the link ends.
func (p *Proxy) connect(by net.Listener, client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close() // which tells it
		return
	}
	l := &link{proxy: p, client: client, server: server, ended: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = true
	l.hung.Store(p.hang)
	cut := p.listener != by
	p.mu.Unlock()
	if cut { // meanwhile
		l.end()
		return
	}
	go l.pass(client, false, l.request)
	l.pass(server, true, l.reply)
}

// link is a connection of a client, and the one to the server that it leads to.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	ended          chan struct{}
	once           sync.Once
	hung           atomic.Bool
	// awaits is the trigger for which the next reply is meant, or nil.
	awaits atomic.Pointer[Trigger]
	// before is the end of what was sent up to now, with the proxy's mutex.
	before []byte
	// prepared has the statements that the client has prepared, with the proxy's mutex.
	prepared preparedTexts
}

// end ends both directions: nothing passes any more.
func (l *link) end() {
	l.once.Do(func() {
		close(l.ended)
		_, _ = l.client.Close(), l.server.Close() // they may have ended
		go func() {                               // the caller may hold the mutex
			l.proxy.mu.Lock()
			defer l.proxy.mu.Unlock()
			delete(l.proxy.links, l)
		}()
	})
}

// piece is what one side has sent at a time.
type piece struct {
	data []byte
	at   time.Time
}

// buffered is how many pieces may be on their way on a slow link.
const buffered = 1024

// pass passes on what one side sends, until it hangs up or do ends the link. do does with a piece what is to be done,
// and reports whether the link goes on.
func (l *link) pass(from net.Conn, reply bool, do func(data []byte) bool) {
	defer l.end()
	pieces := make(chan piece, buffered)
	go l.read(from, pieces)
	for one := range pieces {
		if !l.delay(one, reply) || !do(one.data) {
			return
		}
	}
}

func (l *link) read(from net.Conn, pieces chan<- piece) {
	defer close(pieces)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case pieces <- piece{slices.Clone(buffer[:n]), time.Now()}:
			case <-l.ended:
			}
		}
		if err != nil {
			return
		}
	}
}

// delay waits until a piece is due, and reports whether the link is still there.
func (l *link) delay(one piece, reply bool) bool {
	if late := time.Duration(l.proxy.delay.Load()) - time.Since(one.at); late > 0 {
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

func passOn(to net.Conn, data []byte) bool {
	_, err := to.Write(data)
	return err == nil
}

func (l *link) request(data []byte) bool {
	if l.hung.Load() {
		return true
	}
	trigger := l.proxy.meet(l, data)
	if trigger == nil {
		return passOn(l.server, data)
	}
	switch trigger.Do {
	case Lose:
		trigger.reach()
		return false
	case Hold:
		return trigger.hold(l) && passOn(l.server, data)
	default:
		l.awaits.Store(trigger) // before the server can have an answer
		return passOn(l.server, data) && (trigger.Do != LoseReply || l.lost(trigger))
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

func (l *link) reply(data []byte) bool {
	if l.hung.Load() {
		return true
	}
	l.proxy.mu.Lock()
	l.prepared.reply(data)
	l.proxy.mu.Unlock()
	trigger := l.awaits.Swap(nil)
	if trigger == nil {
		return passOn(l.client, data)
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
		return trigger.hold(l) && passOn(l.client, data)
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

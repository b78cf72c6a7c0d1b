package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

type target struct {
	// public is the address of the balancer, admins those of the admin listeners.
	public string
	admins []string
	// adminToken is for what must be rejected in spite of it.
	adminToken string
	// hot is the item that honest buyers want, and slow are items of other strategies.
	hot  int64
	slow []int64
	// strategies are all that a stockd has, of which this one may have none but its own.
	strategies []string
	// issuer signs the tokens of the attacker's own accounts.
	issuer issuer
	// stolen is a key of an honest purchase that was accepted, and its buyer.
	stolen func(*rand.Rand) (key, user string)
}

// attacker is one connection of the attacker and its randomness.
type attacker struct {
	*rand.Rand
	target

	dialer *net.Dialer
	client *http.Client
}

// requestTimeout is longer than any limit of the balancer.
const requestTimeout = 25 * time.Second

func newAttacker(t target, seed, number uint64, address net.IP) *attacker {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: address}, Timeout: 5 * time.Second}
	return &attacker{
		Rand: rand.New(rand.NewPCG(seed, number)), target: t, dialer: dialer,
		client: &http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{
				DialContext: dialer.DialContext, MaxConnsPerHost: 1, DisableCompression: true, IdleConnTimeout: 30 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (a *attacker) close() { a.client.CloseIdleConnections() }

// How a request ended.
type end string

const (
	answered  end = "answered"
	closed    end = "closed"  // by the other end, without an answer
	dropped   end = "dropped" // by the attacker, on purpose
	silent    end = "silent"  // nothing came in time
	unreached end = "unreached"
)

type outcome struct {
	end     end
	status  int
	problem string // the last part of its type
	order   string
	ticket  string
	units   int64
	size    int
}

// sending is what an attack does once.
type sending interface {
	send(ctx context.Context, a *attacker) []outcome
}

// steps are several requests, one after the other.
type steps func(ctx context.Context, a *attacker) []outcome

func (s steps) send(ctx context.Context, a *attacker) []outcome { return s(ctx, a) }

// request is one that HTTP allows.
type request struct {
	method, path, body, host string
	header                   pairs
	admin                    bool
}

// pairs are headers or fields, by their names.
type pairs map[string]string

// with adds headers to a purchase, and under its key.
func (r request) with(header pairs) request {
	maps.Copy(r.header, header)
	return r
}

func (r request) under(key string) request { return r.with(pairs{"Idempotency-Key": key}) }

func (r request) send(ctx context.Context, a *attacker) []outcome {
	address := a.public
	if r.admin {
		address = a.admins[a.IntN(len(a.admins))]
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, "http://"+address, strings.NewReader(r.body))
	if err != nil {
		return []outcome{{end: unreached}}
	}
	sent.URL.Opaque, sent.Host = r.path, r.host
	if r.body != "" {
		sent.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		sent.Header.Set(name, value)
	}
	response, err := a.client.Do(sent)
	if err != nil {
		return []outcome{{end: endOf(err)}}
	}
	return []outcome{read(response)}
}

const largestAnswer = 4 << 20

func read(response *http.Response) outcome {
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	o := outcome{end: answered, status: response.StatusCode, size: len(body)}
	if err != nil {
		o.end = endOf(err)
	}
	var text struct {
		Type     string `json:"type"`
		OrderID  string `json:"order_id"`
		Quantity int64  `json:"quantity"`
		Ticket   string `json:"ticket"`
	}
	if json.Unmarshal(body, &text) != nil { // nginx's own pages have no type
		return o
	}
	o.problem = text.Type[strings.LastIndexByte(text.Type, ':')+1:]
	if response.StatusCode == http.StatusOK {
		o.order, o.units, o.ticket = text.OrderID, text.Quantity, text.Ticket
	}
	return o
}

// endOf tells an end that the server made from a connection that never was.
func endOf(err error) end {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return unreached
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.Canceled) {
		return silent
	}
	return closed
}

// raw is bytes on a connection of their own, which ends with ctx and with use.
type raw struct {
	address, text string
	use           func(net.Conn, error) []outcome
}

func (r raw) send(ctx context.Context, a *attacker) []outcome {
	conn, err := a.dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return []outcome{{end: unreached}}
	}
	defer conn.Close()                                          //nolint:errcheck // the other end may have closed it
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // what is under way then fails
	_ = conn.SetDeadline(time.Now().Add(patience))              // the next call fails on a closed connection
	_, err = io.WriteString(conn, r.text)
	return r.use(conn, err)
}

// write sends bytes and reads as many answers. One may still be there to read where the server stopped
// reading before everything was sent.
func (*attacker) write(address, text string, answers int) raw {
	return raw{address, text, func(conn net.Conn, err error) (list []outcome) {
		if errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
			return []outcome{{end: endOf(err)}}
		}
		reader := bufio.NewReader(conn)
		for range answers {
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				return append(list, outcome{end: endOf(err)})
			}
			list = append(list, read(response))
			if response.Close {
				break
			}
		}
		return list
	}}
}

const patience = 8 * time.Second

// drop sends bytes and closes the connection, with a reset or with a farewell.
func (a *attacker) drop(address, text string) raw {
	reset := a.IntN(2) == 0
	return raw{address, text, func(conn net.Conn, err error) []outcome {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // either will do
		}
		if err != nil {
			return []outcome{{end: endOf(err)}}
		}
		return []outcome{{end: dropped}}
	}}
}

// drip sends bytes and then one more now and then, until the other end has had
// enough or patience ends.
func (*attacker) drip(address, text string) raw {
	return raw{address, text, func(conn net.Conn, err error) []outcome {
		buffer := make([]byte, 4096)
		_ = conn.SetWriteDeadline(time.Time{}) // patience ends the loop
		for until := time.Now().Add(patience); err == nil && time.Now().Before(until); _, err = conn.Write([]byte{'x'}) {
			_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // Read tells what is wrong with it
			n, err := conn.Read(buffer)
			if n > 0 {
				response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(buffer[:n])), nil)
				if err != nil {
					return []outcome{{end: closed}}
				}
				return []outcome{read(response)}
			}
			if end := endOf(err); end != silent {
				return []outcome{{end: end}}
			}
		}
		if err != nil {
			return []outcome{{end: endOf(err)}}
		}
		return []outcome{{end: dropped}}
	}}
}

func (a *attacker) id() string { return fmt.Sprintf("%s%08d", inventedPrefix, a.IntN(100_000_000)) }

func (a *attacker) text(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[a.IntN(len(letters))]
	}
	return string(b)
}

func (a *attacker) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.IntN(256)) //nolint:gosec // it fits
	}
	return string(b)
}

func pick[T any](a *attacker, list ...T) T { return list[a.IntN(len(list))] }

// issuer signs the tokens of buyers as a shop's own login would. The zero value signs
// none: then a buyer is who it says it is.
type issuer struct{ secret string }

// tokenLasts is longer than any run.
const tokenLasts = 24 * time.Hour

func (i issuer) token(user string) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, user, time.Now().Add(tokenLasts).Unix())
	return sign(`{"alg":"HS256","typ":"JWT"}`, claims, i.secret)
}

// sign is a JWT of a header and claims, by HS256 whatever the header says.
func sign(header, claims, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(header)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

func (i issuer) env() []string {
	if i.secret == "" {
		return []string{"STOCKD_BUYER_FROM=request"}
	}
	return []string{"STOCKD_BUYER_FROM=token", "STOCKD_BUYER_SECRET=" + i.secret}
}

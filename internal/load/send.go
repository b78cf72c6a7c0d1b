package load

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Kind is what an answer means.
type Kind int

// The kinds of answers.
const (
	Sold Kind = iota
	Rejected
	Unknown
	Failed
)

// sender sends purchases. The client is fasthttp's: on a machine that runs
// everything at once, a client that costs more than the server that it
// measures would measure itself.
type sender struct {
	Plan

	client *fasthttp.Client
	uri    string
	// confirm is the beginning of the address that confirms a reservation, or empty.
	confirm string
	// received is the bytes of all answers.
	received atomic.Int64
}

// counted adds what is read from a connection.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

func (s *sender) dial(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: fasthttp.DefaultDialTimeout} // fasthttp's own takes IPv4 alone
	conn, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return counted{Conn: conn, received: &s.received}, nil
}

func newSender(p Plan) (*sender, error) {
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	s := &sender{
		Plan: p, uri: target.String(),
		client: &fasthttp.Client{
			MaxConnsPerHost:               p.Clients,
			NoDefaultUserAgentHeader:      true,
			DisableHeaderNamesNormalizing: true,
			MaxIdleConnDuration:           time.Minute,
			// A purchase that was sent once is never sent twice.
			MaxIdemponentCallAttempts: 1,
			RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
		},
	}
	if p.Paid {
		target.RawQuery = ""
		s.confirm = target.String() + "/"
	}
	s.client.Dial = s.dial
	return s, nil
}

func (s *sender) close() { s.client.CloseIdleConnections() }

func (s *sender) send(client int) Answer {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(s.uri)
	request.Header.SetMethod(fasthttp.MethodPost)
	if s.Look {
		request.Header.SetMethod(fasthttp.MethodGet)
	}
	if s.BuyerToken != nil {
		request.Header.Set("Authorization", "Bearer "+s.BuyerToken())
	}
	if s.User != nil {
		request.URI().QueryArgs().Set("user_id", s.User())
	}
	if s.Goods != nil {
		request.URI().QueryArgs().Set("goods_id", strconv.FormatInt(s.Goods(), 10))
	}
	var key string
	if s.Key != nil {
		key = s.Key(client)
		request.Header.Set("Idempotency-Key", key)
	}
	start := time.Now()
	a := s.ask(request, response)
	if s.confirm != "" && a.Kind == Sold {
		request.SetRequestURI(s.confirm + a.Order + "/confirm?payment_reference=" + a.Order)
		a = s.ask(request, response)
	}
	if s.Observe != nil {
		a.Client, a.Key, a.Start, a.End = client, key, start, time.Now()
		s.Observe(a)
	}
	return a
}

func (s *sender) ask(request *fasthttp.Request, response *fasthttp.Response) Answer {
	if err := s.client.DoTimeout(request, response, s.Timeout); err != nil {
		return failed(err)
	}
	if s.Look && response.StatusCode() == fasthttp.StatusOK {
		return Answer{Kind: Sold}
	}
	return read(response.StatusCode(), response.Body())
}

// failed distinguishes a request that was never sent from one of unknown outcome.
func failed(err error) Answer {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, fasthttp.ErrDialTimeout) || errors.Is(err, fasthttp.ErrNoFreeConns) {
		return Answer{Kind: Failed, Problem: "no-connection"}
	}
	return Answer{Kind: Unknown, Why: err.Error()}
}

// read interprets an answer.
func read(status int, body []byte) Answer {
	var said struct {
		OrderID   string  `json:"order_id"`
		Reserved  string  `json:"reservation_id"`
		Replica   string  `json:"replica"`
		Strategy  string  `json:"strategy"`
		Remaining int64   `json:"remaining"`
		Token     uint64  `json:"token"`
		WaitMS    float64 `json:"wait_ms"`
		HoldMS    float64 `json:"hold_ms"`
		Type      string  `json:"type"`
		Detail    string  `json:"detail"`
	}
	// What is no JSON has no type, and is judged by its status alone.
	_ = json.Unmarshal(body, &said)
	problem := said.Type[strings.LastIndexByte(said.Type, ':')+1:]
	switch {
	case status == fasthttp.StatusCreated && said.Reserved != "":
		return Answer{Kind: Sold, Order: said.Reserved, Replica: said.Replica, Strategy: said.Strategy}
	case status == fasthttp.StatusOK && said.OrderID != "":
		return Answer{
			Kind: Sold, Order: said.OrderID, Replica: said.Replica, Strategy: said.Strategy, Remaining: said.Remaining, Token: said.Token,
			Wait: milliseconds(said.WaitMS), Hold: milliseconds(said.HoldMS),
		}
	case problem == "insufficient-stock":
		return Answer{Kind: Rejected}
	case problem == "outcome-unknown":
		return Answer{Kind: Unknown, Why: said.Detail}
	case problem != "":
		return Answer{Kind: Failed, Problem: problem}
	case status == fasthttp.StatusBadGateway, status == fasthttp.StatusGatewayTimeout:
		return Answer{Kind: Unknown, Why: "HTTP " + strconv.Itoa(status)} // the balancer lost the replica that had it
	default:
		return Answer{Kind: Failed, Problem: "http-" + strconv.Itoa(status)}
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

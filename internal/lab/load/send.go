package load

import (
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// kind is what an answer means.
type kind int

const (
	isSold kind = iota
	isRefused
	isUnknown
	isError
)

// reply is what one request got.
type reply struct {
	kind    kind
	order   string
	replica string
	problem string // type of the problem, where it is an error
}

// sender sends purchases. The client is fasthttp's: on a machine that runs
// everything at once, a client that costs more than the server that it
// measures would measure itself.
type sender struct {
	client  *fasthttp.Client
	uri     string
	timeout time.Duration
}

func newSender(p Plan) (*sender, error) {
	target, err := p.target()
	if err != nil {
		return nil, err
	}
	return &sender{
		uri:     target.String(),
		timeout: p.Timeout,
		client: &fasthttp.Client{
			MaxConnsPerHost:               p.Clients,
			NoDefaultUserAgentHeader:      true,
			DisableHeaderNamesNormalizing: true,
			MaxIdleConnDuration:           time.Minute,
			// A purchase that was sent once is never sent twice.
			MaxIdemponentCallAttempts: 1,
			RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
		},
	}, nil
}

func (s *sender) close() { s.client.CloseIdleConnections() }

func (s *sender) send() reply {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(s.uri)
	request.Header.SetMethod(fasthttp.MethodPost)
	if err := s.client.DoTimeout(request, response, s.timeout); err != nil {
		return failed(err)
	}
	return read(response.StatusCode(), response.Body())
}

// failed tells a request that was never sent from one whose fate is unknown.
func failed(err error) reply {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, fasthttp.ErrDialTimeout) || errors.Is(err, fasthttp.ErrNoFreeConns) {
		return reply{kind: isError, problem: "no-connection"}
	}
	return reply{kind: isUnknown}
}

// read tells what an answer means.
func read(status int, body []byte) reply {
	var said struct {
		OrderID string `json:"order_id"`
		Replica string `json:"replica"`
		Type    string `json:"type"`
	}
	// What is no JSON has no type, and is judged by its status alone.
	_ = json.Unmarshal(body, &said)
	problem := said.Type[strings.LastIndexByte(said.Type, ':')+1:]
	switch {
	case status == fasthttp.StatusOK && said.OrderID != "":
		return reply{kind: isSold, order: said.OrderID, replica: said.Replica}
	case problem == "insufficient-stock":
		return reply{kind: isRefused}
	case problem == "outcome-unknown":
		return reply{kind: isUnknown}
	case problem != "":
		return reply{kind: isError, problem: problem}
	case status == fasthttp.StatusBadGateway, status == fasthttp.StatusGatewayTimeout:
		return reply{kind: isUnknown} // the balancer lost the replica that had it
	default:
		return reply{kind: isError, problem: "http-" + strconv.Itoa(status)}
	}
}

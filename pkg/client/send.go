package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"time"
)

// call is one request and the target of its answer.
type call struct {
	method, url string
	token       string // of the admin or of a buyer, or empty
	more        http.Header
	body        any // nil: none
	requestID   string
	into        any
	tag         *string // set to that of the answer; nil: the answer is never 304
}

// keyed is an answer that has the request id under which it was asked for, and whether it is that of an earlier request.
type keyed interface {
	asked(requestID string, replayed bool)
}

// asBuyer begins a call of the public API with what identifies the buyer, and asAdmin one of the
// admin API.
func (c Client) asBuyer(method, path string) call {
	return call{method: method, url: c.URL + path, token: c.BuyerToken, more: c.Header}
}

func (c Client) asAdmin(method, path string) call {
	return call{method: method, url: c.AdminURL + path, token: c.Token}
}

// with is the call with a body.
func (k call) with(body any) call {
	k.body = body
	return k
}

func answer[T any](ctx context.Context, c Client, k call) (into T, err error) {
	k.into = &into
	err = c.do(ctx, k)
	return into, err
}

const (
	defaultTries = 4
	// firstPause is the longest pause before the second attempt when no connection was made;
	// it doubles with each attempt, as often as doublings says.
	firstPause = 100 * time.Millisecond
	doublings  = 6
	// largestAnswer bounds an answer, in bytes.
	largestAnswer = 4 << 20
)

// errUnsent marks a failure before anything was sent.
var errUnsent = fmt.Errorf("%w: no connection", ErrUnavailable)

// do sends a call, and retries it while that is safe and may help.
func (c Client) do(ctx context.Context, call call) error {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return fmt.Errorf("stockd: %s %s: %w", call.method, call.url, err)
		}
	}
	tries := cmp.Or(c.Tries, defaultTries)
	for try := 1; ; try++ {
		err := c.once(ctx, call, body)
		pause, again := again(err, try)
		if !again || try >= tries || !sleep(ctx, pause) {
			return err
		}
	}
}

// again reports whether a failed call is retried, and after which pause: only where nothing can
// have happened.
func again(err error, try int) (pause time.Duration, again bool) {
	if problem, ok := errors.AsType[*Problem](err); ok {
		return problem.RetryAfter + rand.N(firstPause), problem.Code == "busy" && problem.RetryAfter > 0
	}
	most := firstPause << min(try-1, doublings)
	return most/2 + rand.N(most/2), errors.Is(err, errUnsent)
}

// sleep waits, and returns false without waiting if ctx would end first: then the caller gets the
// failure.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (c Client) once(ctx context.Context, call call, body []byte) error {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	request, err := http.NewRequestWithContext(ctx, call.method, call.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("stockd: %w", err)
	}
	if body != nil {
		request.GetBody = nil // net/http would send a call with a key again after its connection broke, by itself
	}
	call.prepare(request)
	sender := *cmp.Or(c.HTTP, http.DefaultClient)
	sender.CheckRedirect = stay
	response, err := sender.Do(request)
	switch {
	case err != nil && !connected:
		return fmt.Errorf("stockd: %w: %w", errUnsent, err)
	case err != nil:
		return call.lost(err)
	}
	defer response.Body.Close() //nolint:errcheck // the body was read
	answer, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	if err != nil {
		return call.lost(err)
	}
	return call.read(response, answer)
}

// stay follows no redirect: net/http would make a GET of a PATCH, and send tokens to another port.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// internal is the code of an error inside stockd, which may have come after the write.
const internal = "internal"

func (k call) prepare(request *http.Request) {
	maps.Copy(request.Header, k.more)
	if k.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if k.requestID != "" {
		request.Header.Set("Idempotency-Key", k.requestID)
	}
	if k.token != "" {
		request.Header.Set("Authorization", "Bearer "+k.token)
	}
}

// read reads an answer. A failure that is not from stockd is from a balancer, which does not know
// the outcome.
func (k call) read(response *http.Response, answer []byte) error {
	switch {
	case k.tag != nil && response.StatusCode == http.StatusNotModified:
		return nil
	case response.StatusCode/100 != 2:
		return k.failure(response, answer)
	}
	err := json.Unmarshal(answer, k.into)
	if named, ok := k.into.(interface{ id() string }); err == nil && ok && named.id() == "" {
		err = errors.New("it has no id: is it a stockd's?")
	}
	if err != nil {
		return k.lost(fmt.Errorf("read the answer: %w", err))
	}
	if into, ok := k.into.(keyed); ok {
		into.asked(k.requestID, response.Header.Get("Idempotency-Replayed") == "true")
	}
	if k.tag != nil {
		*k.tag = response.Header.Get("ETag")
	}
	return nil
}

func (k call) failure(response *http.Response, answer []byte) error {
	problem, ok := readProblem(response.StatusCode, response.Header, answer)
	switch {
	case !ok && response.StatusCode < http.StatusInternalServerError:
		return fmt.Errorf("stockd: %s %s: %s, and no problem of a stockd", k.method, k.url, response.Status)
	case !ok:
		return k.lost(fmt.Errorf("answered with %s", response.Status))
	}
	problem.RequestID = cmp.Or(problem.RequestID, k.requestID)
	if errors.Is(problem, ErrOutcomeUnknown) || problem.Code == internal && k.method != http.MethodGet {
		if k.method == http.MethodGet { // a balancer that does not distinguish reads from writes
			return k.lost(errors.New(problem.Detail))
		}
		return &UnknownError{RequestID: problem.RequestID, Err: problem}
	}
	return problem
}

// lost is the failure of a call that was sent. A call that only reads has no outcome.
func (k call) lost(err error) error {
	if k.method == http.MethodGet {
		return fmt.Errorf("stockd: GET %s: %w: %w", k.url, ErrUnavailable, err)
	}
	return &UnknownError{RequestID: k.requestID, Err: err}
}

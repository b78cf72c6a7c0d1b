package labtest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Repeating sends requests to no server: each gets the same answer, for an hour. What goes on asking
// fails then. In a bubble of testing/synctest a socket would stop the clock.
func Repeating(answer string) *http.Client {
	return &http.Client{Transport: repeating{answer, time.Now().Add(time.Hour)}}
}

type repeating struct {
	answer string
	until  time.Time
}

func (r repeating) RoundTrip(*http.Request) (*http.Response, error) {
	if time.Now().After(r.until) {
		return nil, errors.New("it is still asked")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.answer))}, nil
}

package handler

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/telemetry"
)

// Half of an answer must not be taken for a whole one.
func TestAPanicInMidAnswerCutsTheConnection(t *testing.T) {
	var log bytes.Buffer
	e := newEngine(Options{Log: slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil))), MaxBody: 1024}, public)
	e.GET("/half", func(c *gin.Context) {
		c.String(http.StatusOK, `{"order_id": `)
		c.Writer.Flush()
		panic("out of ink")
	})
	server := httptest.NewServer(e)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/half", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Request-ID", "mine")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was cut
	if content, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the answer seems to be whole: %q", content)
	}
	server.Close()
	for _, want := range []string{"out of ink", "request_id=mine", "middleware_internal_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
}

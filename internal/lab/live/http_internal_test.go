package live

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// desk is a handler over a session without servers.
func desk(t *testing.T) *httptest.Server {
	t.Helper()
	s := &Session{hub: newHub(), ground: &stage{}}
	s.ctx, s.stop = context.WithCancel(t.Context())
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = NewHandler(s, "secret", server.Listener.Addr().String())
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(s.stop) // streams end first
	return server
}

// served is the handler of a desk.
func served(server *httptest.Server) *Handler {
	return server.Config.Handler.(*Handler) //nolint:forcetypeassert // desk has it so
}

// ask makes a request with headers, given as name and value in turn.
func ask(t *testing.T, server *httptest.Server, method, path string, headers ...string) *http.Response {
	t.Helper()
	return send(t, server, method, path, "", headers...)
}

func send(t *testing.T, server *httptest.Server, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	response := must.Get(server.Client().Do(r))(t)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// postTo posts JSON, and returns the status and the text of the answer.
func postTo(t *testing.T, server *httptest.Server, path, body string, headers ...string) (int, string) {
	t.Helper()
	response := send(t, server, http.MethodPost, path, body, headers...)
	said := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(said)
}

func TestOnlyAPageWithTheTokenSteers(t *testing.T) {
	server := desk(t)
	const path = "/sale/stop" // a conflict where it is let in: nothing is sold
	for _, c := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"with the token", []string{"Authorization", "Bearer secret"}, http.StatusConflict},
		{"with the token, from this page", []string{"Authorization", "Bearer secret", "Origin", server.URL, "Sec-Fetch-Site", "same-origin"}, http.StatusConflict},
		{"without a token", nil, http.StatusForbidden},
		{"with another token", []string{"Authorization", "Bearer secrets"}, http.StatusForbidden},
		{"with the token as another scheme", []string{"Authorization", "secret"}, http.StatusForbidden},
		{"with the token, from another page", []string{"Authorization", "Bearer secret", "Origin", "http://example.com"}, http.StatusForbidden},
		{"with the token, from another site", []string{"Authorization", "Bearer secret", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{path, "/machines/replica-1/kill"} {
				should.Be(t, ask(t, server, http.MethodPost, path, c.headers...).StatusCode, c.want, "POST … is answered with", path)
			}
		})
	}
	if got := ask(t, server, http.MethodGet, path, "Authorization", "Bearer secret").StatusCode; got != http.StatusNotFound && got != http.StatusMethodNotAllowed {
		t.Errorf("GET %s is answered with %d", path, got)
	}
}

// A browser leaves the port of HTTP out of the host, and writes a name in lower case.
func TestThePageIsAtItsHostAsABrowserWritesIt(t *testing.T) {
	h := NewHandler(&Session{}, "secret", "MyLaptop.local:80", "127.0.0.1:8090")
	for host, want := range map[string]int{
		"mylaptop.local": http.StatusOK, "mylaptop.local:80": http.StatusOK, "mylaptop.local:8090": http.StatusMisdirectedRequest,
		"127.0.0.1:8090": http.StatusOK, "127.0.0.1": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		r := httptest.NewRequest(http.MethodGet, "/style.css", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		should.Be(t, w.Code, want, "at … it is answered with", host)
	}
}

// Where the page breaks its policy a browser complains, which fails the tests that show it.
func TestThePolicyAllowsNothingFromElsewhere(t *testing.T) {
	got := ask(t, desk(t), http.MethodGet, "/").Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(got, "default-src 'none'; ") || strings.Contains(got, "unsafe") || strings.Contains(got, "http") {
		t.Errorf("the policy is %q", got)
	}
}

// What was taken from elsewhere is what its note says.
func TestTheVendoredFilesAreThoseThatAreNoted(t *testing.T) {
	note := must.Get(fs.ReadFile(page, "page/lib/README.md"))(t)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([0-9a-f]{64})` \\|$").FindAllSubmatch(note, -1)
	if len(rows) != 2 {
		t.Fatalf("the note has %d files, want 2", len(rows))
	}
	for _, row := range rows {
		content := must.Get(fs.ReadFile(page, "page/lib/"+string(row[1])))(t)
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != string(row[2]) {
			t.Errorf("%s has the checksum %x", row[1], sum)
		}
	}
}

// A browser takes a stream for open when its head is there.
func TestAStreamOfAQuietSaleOpensAtOnce(t *testing.T) {
	server := desk(t)
	began := time.Now()
	answer := ask(t, server, http.MethodGet, "/events", "Last-Event-ID", strconv.FormatUint(served(server).session.hub.last, 10))
	if took := time.Since(began); answer.StatusCode != http.StatusOK || took > beatEvery/2 {
		t.Errorf("it opens with %d after %s", answer.StatusCode, took)
	}
}

func TestAStreamBeginsWithASnapshotAndGoesOnAfterAnID(t *testing.T) {
	server := desk(t)
	h := served(server).session.hub
	first := bufio.NewScanner(ask(t, server, http.MethodGet, "/events").Body)
	var id string
	for first.Scan() && first.Text() != "" {
		if found, ok := strings.CutPrefix(first.Text(), "id: "); ok {
			id = found
		}
	}
	sell(h, 5, 1)
	again := bufio.NewScanner(ask(t, server, http.MethodGet, "/events", "Last-Event-ID", id).Body)
	for again.Scan() {
		if kind, ok := strings.CutPrefix(again.Text(), "event: "); ok {
			should.Be(t, kind, "point", "after … comes a", id)
			return
		}
	}
	t.Errorf("the stream ended: %v", again.Err())
}

// One classroom may be behind one address; each of its phones opens connections of its own.
func TestConnectionsOfOneAddressShareItsLimit(t *testing.T) {
	server := desk(t)
	server.Client().Transport.(*http.Transport).DisableKeepAlives = true //nolint:forcetypeassert // httptest has it so
	for range 10 * joinsAMinute {                                        // the limit grows while they are sent
		if status, said := postTo(t, server, "/buy/join", `{"name": ""}`); status == http.StatusTooManyRequests && strings.Contains(said, "try again in a minute") {
			return
		}
	}
	t.Error("each connection has a limit of its own")
}

func TestAPhoneSendsNoMoreThanAName(t *testing.T) {
	body := `{` + strings.Repeat(" ", maxBody) + `"name": "Ann"}`
	status, said := postTo(t, desk(t), "/buy/join", body)
	should.Be(t, status, http.StatusUnprocessableEntity, "… bytes are answered with", len(body), said)
}

func TestAPageThatIsTurnedAwayTakesNoPlace(t *testing.T) {
	server := desk(t)
	h := served(server)
	h.readers.Store(maxReaders)
	for range 3 {
		should.Be(t, ask(t, server, http.MethodGet, "/events").StatusCode, http.StatusServiceUnavailable, "it is answered with")
	}
	should.Be(t, h.readers.Load(), maxReaders, "places are taken")
}

// deadlined keeps the deadline of what is written.
type deadlined struct {
	*httptest.ResponseRecorder

	until time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.until = t
	return nil
}

// A proxy would cut a stream that is silent, and a page that takes nothing would be kept for ever.
func TestAQuietStreamShowsThatItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{session: &Session{hub: newHub()}}
		for range 2 {
			last, w, began := h.session.hub.last, &deadlined{ResponseRecorder: httptest.NewRecorder()}, time.Now()
			err := h.stream(t.Context(), w, &last)
			if err != nil || w.Body.String() != ": open\n\n" || time.Since(began) != beatEvery {
				t.Errorf("%q after %s (%v), want a comment after %s", w.Body, time.Since(began), err, beatEvery)
			}
			if want := time.Now().Add(writeWithin); !w.until.Equal(want) {
				t.Errorf("it may be written until %s, want %s", w.until, want)
			}
		}
	})
}

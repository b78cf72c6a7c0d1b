package live

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/pause"
)

//go:embed page
var page embed.FS

const (
	// maxReaders is how many pages may be open at a time.
	maxReaders = 512
	// writeWithin bounds the write of events to one reader: one that takes nothing for so
	// long is gone, and comes again if it is not.
	writeWithin = 30 * time.Second
	// beatEvery is how often a stream without events shows that it is open.
	beatEvery = 15 * time.Second
	// passEvery is the pause between two writes to a reader: what happens meanwhile is
	// written at once. Of more than few readers the pause grows, up to passLate, so that a class
	// of them takes little from the sale beside it.
	passEvery = 100 * time.Millisecond
	passLate  = 500 * time.Millisecond
	few       = 20
	maxBody   = 4 << 10
)

// policy lets the page load what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page of a session.
//
//  1. A request that changes something has the token, and a browser sends it from this page alone.
//     A phone that has joined has a token of its own, which buys in its name and does nothing else.
//  2. A request for another host than those given is rejected, so that no name of a stranger leads here.
//  3. The page loads nothing from elsewhere, and runs no inline script.
//  4. One address joins a class at a bounded rate, and leaves half of the places to others.
type Handler struct {
	session *Session
	token   string
	hosts   []string
	guarded http.Handler // the routes, for requests of this page alone
	readers atomic.Int64
}

// NewHandler serves at the given hosts, such as 127.0.0.1:8090.
func NewHandler(s *Session, token string, hosts ...string) *Handler {
	h := &Handler{session: s, token: token, hosts: hosts}
	h.guarded = http.NewCrossOriginProtection().Handler(h.routes())
	return h
}

// ServeHTTP serves the page, its events and its commands.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.ContainsFunc(h.hosts, func(host string) bool { return sameHost(host, r.Host) }) {
		http.Error(w, "this page is at "+strings.Join(h.hosts, " or "), http.StatusMisdirectedRequest)
		return
	}
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	h.guarded.ServeHTTP(w, r)
}

// sameHost compares hosts as browsers write them: in lower case, and without the port of HTTP.
func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, ":80"), strings.TrimSuffix(b, ":80"))
}

func (h *Handler) routes() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // it is part of the program
	}
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", h.events)
	mux.HandleFunc("GET /sees/{backend}", answers(func(r *http.Request) (View, error) { return h.session.See(r.Context(), r.PathValue("backend")) }))
	mux.HandleFunc("GET /code/{strategy}", answers(func(r *http.Request) ([]Listing, error) { return listings(r.PathValue("strategy")) }))
	mux.HandleFunc("GET /recording", answers(func(*http.Request) ([]Recording, error) { return h.session.Recordings() }))
	mux.HandleFunc("GET /experiments", answers(func(*http.Request) (Programme, error) { return h.session.Programme(), nil }))
	mux.HandleFunc("GET /trial", answers(func(*http.Request) (json.RawMessage, error) { return trial.Published(), nil }))
	mux.HandleFunc("POST /experiments/{name}", h.steers(func(r *http.Request) error { return h.session.Play(r.PathValue("name")) }))
	mux.HandleFunc("GET /saved", h.saved)
	mux.HandleFunc("GET /buy", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "buy.html") })
	mux.HandleFunc("GET /buy/code.png", h.classCode)
	mux.HandleFunc("POST /buy/join", answers(h.join))
	mux.HandleFunc("POST /buy", answers(func(r *http.Request) (Bought, error) { return h.session.Buy(r.Context(), bearer(r)) }))
	mux.HandleFunc("POST /sale/{command}", h.steers(h.command))
	mux.HandleFunc("POST /machines/{name}/{action}", h.steers(func(r *http.Request) error {
		return h.session.Act(r.PathValue("name"), r.PathValue("action"))
	}))
	return mux
}

// steers answers a command of a reader who has the token.
func (h *Handler) steers(do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(bearer(r)), []byte(h.token)) != 1 {
			answer(w, http.StatusForbidden, map[string]string{"error": "the address that stocklab live printed has the token for this"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := do(r); err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusAccepted, struct{}{})
	}
}

// answers handles a question whose answer is a value as JSON.
func answers[T any](ask func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := ask(r)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

// bearer is the token of a request, or empty.
func bearer(r *http.Request) string {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return given
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	for kind, its := range map[error]int{
		errInput: http.StatusUnprocessableEntity, errConflict: http.StatusConflict,
		errTooSoon: http.StatusTooManyRequests, errStranger: http.StatusForbidden, fs.ErrNotExist: http.StatusNotFound,
	} {
		if errors.Is(err, kind) {
			status = its
		}
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

// join lets a phone into the class.
func (h *Handler) join(r *http.Request) (map[string]string, error) {
	asked, err := read[struct {
		Name string `json:"name"`
	}](r.Body)
	if err != nil {
		return nil, err
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	token, err := h.session.class.join(asked.Name, from, time.Now())
	return map[string]string{"token": token}, err
}

func (h *Handler) command(r *http.Request) error {
	switch r.PathValue("command") {
	case "start":
		return given(r, h.session.Start)
	case "switch":
		return given(r, h.session.Switch)
	case "pause":
		return h.session.Pause()
	case "continue":
		return h.session.Continue()
	case "stop":
		return h.session.Stop()
	case "correct":
		return h.session.Correct()
	default:
		return fmt.Errorf("%w: %q is not start, switch, pause, continue, stop or correct", errInput, r.PathValue("command"))
	}
}

// given does something with what a request says.
func given[T any](r *http.Request, do func(T) error) error {
	v, err := read[T](r.Body)
	if err != nil {
		return err
	}
	return do(v)
}

func read[T any](body io.Reader) (v T, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return v, fmt.Errorf("%w: %w", errInput, err)
	}
	return v, nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // it is plain data, and the reader may have gone
}

// saved is what the page shows, as far as it has come, as a file that needs no server.
func (h *Handler) saved(w http.ResponseWriter, _ *http.Request) {
	list, err := h.session.Recordings()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="stocklab-live.html"`)
	_ = Save(w, list...) // the reader may have gone
}

// events streams what happens.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	if h.readers.Add(1) > maxReaders {
		h.readers.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.readers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	if http.NewResponseController(w).Flush() != nil { // the head: a stream is open when it is there
		return
	}
	// No id, or none that is a number, is no id of the hub: it gets a snapshot.
	last, _ := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	// A stream ends with the session: otherwise its server could not be shut down.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.session.ctx, cancel)()
	for h.stream(ctx, w, &last) == nil && pause.For(ctx, passAfter(h.readers.Load())) == nil {
	}
}

// passAfter is the pause of each of so many readers.
func passAfter(readers int64) time.Duration {
	return min(passLate, passEvery*time.Duration(max(1, readers/few)))
}

// stream writes what comes next, or that there is nothing.
func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, last *uint64) error {
	waiting, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	list, err := h.session.hub.next(waiting, *last)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	control := http.NewResponseController(w)
	if late := control.SetWriteDeadline(time.Now().Add(writeWithin)); late != nil {
		return late
	}
	if err != nil {
		_, err = io.WriteString(w, ": open\n\n")
	}
	for _, m := range list {
		if _, err = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", m.ID, m.Kind, m.Data); err != nil {
			return err
		}
		*last = m.ID
	}
	return errors.Join(err, control.Flush())
}

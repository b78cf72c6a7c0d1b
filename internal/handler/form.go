package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stockd/stockd/internal/stock"
)

// form reads the fields of a request, wherever they come from: the query, a
// form or a JSON object. A field is known, given once and of its type, or it
// is an error that names it; errors are gathered, so that a client hears of
// all of them at once.
type form struct {
	values map[string]value
	errs   []fieldError
	more   int // wrong fields that errs does not name
}

// value is a field as it was sent.
type value struct {
	text string
	from string // "query" or "body"
	kind jsonKind
}

// jsonKind is what JSON wrote a value as; query and form know no kinds.
type jsonKind int

const (
	untyped jsonKind = iota
	jsonText
	jsonNumber
	jsonBool
	jsonNull
)

// readForm reads the query and the body of a request; known are the fields
// that it may have. An error is a problem; without one, fields may still be
// wrong, as form.err tells.
func readForm(r *http.Request, known ...string) (*form, error) {
	f := &form{values: make(map[string]value, len(known))}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid(fieldError{"query", "is not well formed: " + err.Error()})
	}
	f.addPairs(query, "query", known)
	return f, f.readBody(r, known)
}

func (f *form) readBody(r *http.Request, known []string) error {
	body, err := io.ReadAll(r.Body)
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		return newProblem(http.StatusRequestEntityTooLarge, "body-too-large", "The body is too large").
			detail("body is larger than the %d bytes that are allowed", tooLarge.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newProblem(http.StatusRequestTimeout, "request-timeout", "The request took too long to arrive")
	}
	if err != nil {
		return invalid(fieldError{"body", "could not be read to its end"})
	}
	if len(body) == 0 {
		return nil
	}
	if !utf8.Valid(body) {
		return invalid(fieldError{"body", "is not UTF-8"})
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && media == "application/json":
		return f.readJSON(body, known)
	case err == nil && media == "application/x-www-form-urlencoded":
		pairs, err := url.ParseQuery(string(body))
		if err != nil {
			return invalid(fieldError{"body", "is not a well-formed form: " + err.Error()})
		}
		f.addPairs(pairs, "body", known)
		return nil
	default:
		allowed := fieldError{"Content-Type", "must be application/json or application/x-www-form-urlencoded"}
		p := newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is of a kind that is not read here").
			detail("%s %s", allowed.Field, allowed.Error)
		p.Errors = []fieldError{allowed}
		return p
	}
}

func (f *form) addPairs(pairs url.Values, from string, known []string) {
	names := make([]string, 0, len(pairs))
	for name := range pairs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, text := range pairs[name] {
			f.add(name, value{text: text, from: from}, known)
		}
	}
}

// readJSON reads one flat object. The standard decoder would let the last of
// two equal names win; here that is an error like any other.
func (f *form) readJSON(body []byte, known []string) error {
	broken := func(err error) error {
		return invalid(fieldError{"body", "is not one JSON object: " + err.Error()})
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	switch open, err := d.Token(); {
	case err != nil:
		return broken(err)
	case open != json.Delim('{'):
		return broken(errors.New("it must begin with {"))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return broken(err)
		}
		token, err := d.Token()
		if err != nil {
			return broken(err)
		}
		v, plain := jsonValue(token)
		if !plain {
			return invalid(fieldError{shorten(fmt.Sprint(name), mostQuoted), "must be a plain value, not an object or a list"})
		}
		f.add(fmt.Sprint(name), v, known)
	}
	if _, err := d.Token(); err != nil {
		return broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return broken(errors.New("something follows the object"))
	}
	return nil
}

func jsonValue(token json.Token) (v value, plain bool) {
	v.from = "body"
	switch t := token.(type) {
	case string:
		v.text, v.kind = t, jsonText
	case json.Number:
		v.text, v.kind = t.String(), jsonNumber
	case bool:
		v.text, v.kind = strconv.FormatBool(t), jsonBool
	case nil:
		v.kind = jsonNull
	default:
		return value{}, false
	}
	return v, true
}

func (f *form) add(name string, v value, known []string) {
	switch before, twice := f.values[name]; {
	case len(known) == 0:
		f.failf(name, "is not a field here; there are none")
	case !slices.Contains(known, name):
		f.failf(name, "is not a field here; allowed are %s", strings.Join(known, ", "))
	case twice && before.from == v.from:
		f.failf(name, "is given twice in the %s; once is allowed", v.from)
	case twice:
		f.failf(name, "is given in the query and in the body; once is allowed")
	default:
		f.values[name] = v
	}
}

// mostErrors is how many wrong fields a problem names: a client may send thousands.
const mostErrors = 10

func (f *form) failf(field, format string, args ...any) {
	if len(f.errs) == mostErrors {
		f.more++
		return
	}
	f.errs = append(f.errs, fieldError{Field: shorten(field, mostQuoted), Error: fmt.Sprintf(format, args...)})
}

// err is nil where no field was wrong.
func (f *form) err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return invalidAnd(f.more, f.errs...)
}

// whole reads a whole number from least to most.
func (f *form) whole(name string, least, most int64) int64 {
	v, given := f.values[name]
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	if !given || v.kind == jsonNull || v.text == "" {
		f.failf(name, "is missing; it must be %s", allowed)
		return 0
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n < least || n > most || v.kind != untyped && v.kind != jsonNumber {
		f.failf(name, "must be %s, not %s", allowed, quote(v))
		return 0
	}
	return n
}

// wholeOr is whole for a field that need not be there.
func (f *form) wholeOr(name string, otherwise, least, most int64) int64 {
	if _, given := f.values[name]; !given {
		return otherwise
	}
	return f.whole(name, least, most)
}

// flag reads true or false; what is not there is false.
func (f *form) flag(name string) bool {
	v, given := f.values[name]
	if !given {
		return false
	}
	if v.text != "true" && v.text != "false" || v.kind != untyped && v.kind != jsonBool {
		f.failf(name, "must be true or false, not %s", quote(v))
	}
	return v.text == "true"
}

// given tells whether at least one of the fields is there.
func (f *form) given(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, there := f.values[name]
		return there
	})
}

// flagIfGiven is flag for a field of which it matters whether it is there; nil: it is
// not.
func (f *form) flagIfGiven(name string) *bool {
	if !f.given(name) {
		return nil
	}
	return new(f.flag(name))
}

// oneOf reads one of several words.
func (f *form) oneOf(name string, words ...string) string {
	v, given := f.values[name]
	switch allowed := strings.Join(words, ", "); {
	case !given:
		f.failf(name, "is missing; it must be one of %s", allowed)
	case !slices.Contains(words, v.text):
		f.failf(name, "must be one of %s, not %s", allowed, quote(v))
	}
	return v.text
}

// flagGiven is flag for a field that must be there.
func (f *form) flagGiven(name string) bool {
	if _, given := f.values[name]; !given {
		f.failf(name, "is missing; it must be true or false")
	}
	return f.flag(name)
}

// duration reads a text such as 2s.
func (f *form) duration(name string, least, most time.Duration) time.Duration {
	v, given := f.values[name]
	if !given {
		f.failf(name, "is missing; it must be a duration from %s to %s", least, most)
		return 0
	}
	d, err := time.ParseDuration(v.text)
	if err != nil || d < least || d > most || v.kind != untyped && v.kind != jsonText {
		f.failf(name, "must be a duration from %s to %s such as 2s or 250ms, not %s", least, most, quote(v))
	}
	return d
}

// without refuses a field that has no meaning here.
func (f *form) without(name, because string) {
	if _, given := f.values[name]; given {
		f.failf(name, "has no meaning where %s", because)
	}
}

// durability reads redis or sql; what is not there is empty.
func (f *form) durability() stock.Durability {
	v, given := f.values["durable"]
	if !given {
		return ""
	}
	d := stock.Durability(v.text)
	if d != stock.InRedis && d != stock.InSQL {
		f.failf("durable", "must be redis or sql, not %s", quote(v))
	}
	return d
}

// text reads up to most printable characters; what is not there is empty.
func (f *form) text(name string, most int) string {
	v, given := f.values[name]
	if !given {
		return ""
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if v.text == "" || utf8.RuneCountInString(v.text) > most || strings.ContainsFunc(v.text, unprintable) ||
		!utf8.ValidString(v.text) || v.kind == jsonBool {
		f.failf(name, "must be 1 to %d printable characters, not %s", most, quote(v))
		return ""
	}
	return v.text
}

// mostQuoted bounds what a problem or the log quotes of one part of a request, in
// characters.
const mostQuoted = 40

// shorten cuts a text off after so many characters.
func shorten(text string, most int) string {
	count := 0
	for at := range text {
		if count == most {
			return text[:at] + "…"
		}
		count++
	}
	return text
}

// quote shows a value as it was sent, shortened.
func quote(v value) string {
	if v.kind == jsonNull {
		return "null"
	}
	text := shorten(v.text, mostQuoted)
	if v.kind == jsonNumber || v.kind == jsonBool {
		return text
	}
	return strconv.Quote(text)
}

// visible reads 1 to most visible ASCII characters, in JSON as text.
func (f *form) visible(name string, most int) string {
	v, given := f.values[name]
	switch {
	case !given:
		f.failf(name, "is missing; it must be 1 to %d visible ASCII characters", most)
	case v.text == "" || len(v.text) > most || strings.ContainsFunc(v.text, invisible) || v.kind != untyped && v.kind != jsonText:
		f.failf(name, "must be 1 to %d visible ASCII characters, not %s", most, quote(v))
	}
	return v.text
}

// idempotencyKey reads the header: up to stock.MaxRequestID visible ASCII
// characters, or nothing.
func (f *form) idempotencyKey(r *http.Request) string {
	const name = "Idempotency-Key"
	switch given := r.Header.Values(name); {
	case len(given) == 0:
		return ""
	case len(given) > 1:
		f.failf(name, "is given %d times; once is allowed", len(given))
		return ""
	case len(given[0]) < 1 || len(given[0]) > stock.MaxRequestID || strings.ContainsFunc(given[0], invisible):
		f.failf(name, "must be 1 to %d visible ASCII characters without spaces", stock.MaxRequestID)
		return ""
	default:
		return given[0]
	}
}

func invisible(r rune) bool { return r <= ' ' || r > '~' }

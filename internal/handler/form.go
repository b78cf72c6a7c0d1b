package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/stock"
)

// form reads the fields of a request from the query, a form or a JSON object. A field is
// known, given once and of its type, or an error names it; the errors are collected, so that
// a client gets all of them at once.
type form struct {
	values map[string]value
	unread error // why no field could be read
	errs   []fieldError
	more   int // wrong fields that errs does not name
}

// value is a field as it was sent.
type value struct {
	text string
	from string // "query" or "body"
	kind jsonKind
}

// jsonKind is the JSON type of a value; queries and forms have none.
type jsonKind int

const (
	untyped  jsonKind = 0
	jsonText jsonKind = 1 << iota
	jsonNumber
	jsonBool
	jsonNull
	jsonList // with its text as it was sent
)

// readForm reads the query and the body of a request, where it is one that may have a body; known
// are the fields that it may have. What is wrong with it, form.err says.
func readForm(r *http.Request, known ...string) *form {
	f := &form{values: make(map[string]value, len(known))}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		f.unread = invalid(fieldError{"query", "is not well formed: " + err.Error()})
		return f
	}
	f.addPairs(query, "query", known)
	f.unread = f.readBody(r, known)
	return f
}

func formOf(object []byte, known ...string) *form {
	f := &form{values: make(map[string]value, len(known))}
	f.unread = f.readJSON(object, known)
	return f
}

func (f *form) readBody(r *http.Request, known []string) error {
	if r.Body == http.NoBody || r.Method == http.MethodGet {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
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
		p := newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The media type of the body is not supported").
			detail("%s %s", allowed.Field, allowed.Error)
		p.Errors = []fieldError{allowed}
		return p
	}
}

func (f *form) addPairs(pairs url.Values, from string, known []string) {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		for _, text := range pairs[name] {
			f.add(name, value{text: text, from: from}, known)
		}
	}
}

// broken says that a body is not one JSON object, and why.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return invalid(fieldError{"body", "is not one JSON object: " + err.Error()})
}

// readJSON reads one flat object. Unlike the standard decoder, which takes the last of two
// equal names, it rejects them.
func (f *form) readJSON(body []byte, known []string) error {
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
		list := name == "lines"
		v, ok := jsonValue(token)
		if list && token == json.Delim('[') {
			if v, err = listValue(d); err != nil {
				return broken(err)
			}
			ok = true
		}
		switch {
		case !ok && list:
			return invalid(fieldError{"lines", "must be a list, or text"})
		case !ok:
			return invalid(fieldError{shorten(fmt.Sprint(name), maxQuoted), "must be a plain value, not an object or a list"})
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

// listValue reads a list whose [ has been read.
func listValue(d *json.Decoder) (value, error) {
	elements := []json.RawMessage{}
	for d.More() {
		var element json.RawMessage
		if err := d.Decode(&element); err != nil {
			return value{}, err
		}
		elements = append(elements, element)
	}
	if _, err := d.Token(); err != nil {
		return value{}, err
	}
	text, err := json.Marshal(elements)
	return value{text: string(text), from: "body", kind: jsonList}, err
}

func jsonValue(token json.Token) (v value, ok bool) {
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

// maxErrors is how many wrong fields a problem names: a client may send thousands.
const maxErrors = 10

func (f *form) failf(field, format string, args ...any) {
	if len(f.errs) == maxErrors {
		f.more++
		return
	}
	f.errs = append(f.errs, fieldError{Field: shorten(field, maxQuoted), Error: fmt.Sprintf(format, args...)})
}

// err is a problem, or nil where no field was wrong.
func (f *form) err() error {
	if f.unread != nil || len(f.errs) == 0 {
		return f.unread
	}
	return invalidAnd(f.more, f.errs...)
}

func (f *form) given(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := f.values[name]
		return ok
	})
}

// require rejects a field that is missing; allowed completes "it must be".
func (f *form) require(name, allowed string) {
	if !f.given(name) {
		f.failf(name, "is missing; it must be %s", allowed)
	}
}

// without rejects a field that has no meaning here.
func (f *form) without(name, because string) {
	if f.given(name) {
		f.failf(name, "has no meaning where %s", because)
	}
}

// read parses a field, which is the zero value where it is missing or rejected. kinds are the
// JSON types that it may have, and allowed completes "must be" where it has to be said.
func read[T any](f *form, name string, allowed func() string, kinds jsonKind, parse func(text string) (T, bool)) (parsed T) {
	v, ok := f.values[name]
	if !ok {
		return parsed
	}
	if n, ok := parse(v.text); ok && (v.kind == untyped || v.kind&kinds != 0) {
		return n
	}
	f.failf(name, "must be %s, not %s", allowed(), quote(v))
	return parsed
}

func words(said string) func() string { return func() string { return said } }

// whole reads a whole number from least to most; null and the empty text count as missing.
func (f *form) whole(name string, least, most int64) int64 {
	allowed := func() string { return fmt.Sprintf("a whole number from %d to %d", least, most) }
	if f.values[name].text == "" {
		f.failf(name, "is missing; it must be %s", allowed())
		return 0
	}
	return read(f, name, allowed, jsonNumber, func(text string) (int64, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n >= least && n <= most
	})
}

func (f *form) wholeOr(name string, otherwise, least, most int64) int64 {
	if !f.given(name) {
		return otherwise
	}
	return f.whole(name, least, most)
}

const trueOrFalse = "true or false"

// flag reads true or false; a missing field is false.
func (f *form) flag(name string) bool {
	return read(f, name, words(trueOrFalse), jsonBool, func(text string) (flag, ok bool) {
		return text == "true", text == "true" || text == "false"
	})
}

func (f *form) flagIfGiven(name string) *bool {
	if !f.given(name) {
		return nil
	}
	return new(f.flag(name))
}

// oneOf reads one of several words; a missing field is empty.
func (f *form) oneOf(name, allowed string, of ...string) string {
	return read(f, name, words(allowed), jsonText, func(text string) (string, bool) { return text, slices.Contains(of, text) })
}

// durability reads redis or sql; a missing field is empty.
func (f *form) durability() stock.Durability {
	return stock.Durability(f.oneOf("durable", "redis or sql", string(stock.InRedis), string(stock.InSQL)))
}

// text reads up to most printable characters; a missing field is empty.
func (f *form) text(name string, most int) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	allowed := func() string { return fmt.Sprintf("1 to %d printable characters", most) }
	return read(f, name, allowed, jsonText|jsonNumber, func(text string) (string, bool) {
		return text, text != "" && utf8.RuneCountInString(text) <= most && !strings.ContainsFunc(text, unprintable) && utf8.ValidString(text)
	})
}

// visible reads 1 to most visible ASCII characters, in JSON as text.
func (f *form) visible(name string, most int) string {
	allowed := func() string { return fmt.Sprintf("1 to %d visible ASCII characters", most) }
	f.require(name, allowed())
	return read(f, name, allowed, jsonText, func(text string) (string, bool) {
		return text, text != "" && len(text) <= most && !strings.ContainsFunc(text, invisible)
	})
}

// maxQuoted bounds what a problem or the log quotes of one part of a request, in
// characters.
const maxQuoted = 40

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
	text := shorten(v.text, maxQuoted)
	if v.kind == jsonNumber || v.kind == jsonBool {
		return text
	}
	return strconv.Quote(text)
}

// idempotencyKey reads the header: up to stock.MaxRequestID visible ASCII characters, or
// empty where there is none.
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

// user reads a buyer in the form of buyer.Canonical; a missing field is empty. A JSON number is
// the same buyer as its digits as text, because many systems number their users.
func (f *form) user(name string) string {
	v, ok := f.values[name]
	if !ok {
		return ""
	}
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	if v.kind == jsonBool || v.kind == jsonNull || v.kind == jsonNumber && strings.ContainsFunc(v.text, notDigit) {
		f.failf(name, "must be text or a whole number, not %s", quote(v))
		return ""
	}
	id, err := buyer.Canonical(v.text)
	if err != nil {
		f.failf(name, "%v, not %s", err, quote(v))
	}
	return id
}

// choice reads a change to the choice of an item: a missing field keeps its value; null, or an
// empty strategy, clears it.
func (f *form) choice() func(stock.Choice) stock.Choice {
	var to stock.Choice
	if f.values["strategy"].text != "" {
		to.Strategy = f.text("strategy", maxStrategy)
	}
	to.Group, to.Fence = f.flagOrNull("group"), f.flagOrNull("fence")
	if f.given("max_quantity") && f.values["max_quantity"].kind != jsonNull {
		to.MaxQuantity = new(f.whole("max_quantity", 1, stock.MaxQuantity))
	}
	return func(c stock.Choice) stock.Choice {
		if f.given("strategy") {
			c.Strategy = to.Strategy
		}
		if f.given("group") {
			c.Group = to.Group
		}
		if f.given("fence") {
			c.Fence = to.Fence
		}
		if f.given("max_quantity") {
			c.MaxQuantity = to.MaxQuantity
		}
		return c
	}
}

// sale reads a change to the times of a sale; null, or an empty text, is any time.
func (f *form) sale() stock.SaleChange {
	return stock.SaleChange{StartsAt: f.time("starts_at"), EndsAt: f.time("ends_at")}
}

// time reads a time in RFC 3339, to the millisecond; nil: it is missing.
func (f *form) time(name string) *time.Time {
	if !f.given(name) {
		return nil
	}
	if f.values[name].text == "" {
		return new(time.Time)
	}
	at := read(f, name, words("a time such as 2026-11-27T20:00:00Z, from 2000 to 2099"), jsonText, func(text string) (time.Time, bool) {
		at, err := time.Parse(time.RFC3339Nano, text)
		at = at.UTC().Truncate(time.Millisecond)
		return at, err == nil && at.Year() >= 2000 && at.Year() < 2100
	})
	return &at
}

// flagOrNull is flagIfGiven, where null is nil as well.
func (f *form) flagOrNull(name string) *bool {
	if f.values[name].kind == jsonNull {
		return nil
	}
	return f.flagIfGiven(name)
}

package handler

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// FuzzFormsAgree sends the same fields as a query, as a form and as JSON: each is
// read the same, or rejected for the same field.
func FuzzFormsAgree(f *testing.F) {
	f.Add(int64(1), "u-1", true)
	f.Add(int64(1_000_000), "", false)
	f.Add(int64(-1), "naïve ☂", true)
	f.Add(int64(1_000_001), strings.Repeat("x", 65), false)
	f.Add(int64(0), "a\tb", true)
	f.Add(int64(1), "Andre\u0301", true)
	f.Add(int64(1), " 7", true)
	f.Add(int64(7), "\u2028<script>&;=+%00", true)
	f.Fuzz(func(t *testing.T, quantity int64, user string, group bool) {
		if !utf8.ValidString(user) {
			t.Skip("JSON has no way to say it")
		}
		pairs := url.Values{"quantity": {strconv.FormatInt(quantity, 10)}, "user_id": {user}, "group": {strconv.FormatBool(group)}}.Encode()
		object := must.Get(json.Marshal(map[string]any{"quantity": quantity, "user_id": user, "group": group}))(t)
		want := readFields(t, pairs, "", "")
		if len(want.wrong) == 0 && (quantity < 1 || quantity > 1_000_000 || want.quantity != quantity || want.user != norm.NFC.String(user) || want.group != group) {
			t.Errorf("%s is read as %+v", pairs, want)
		}
		for media, body := range map[string]string{"application/x-www-form-urlencoded": pairs, "application/json": string(object)} {
			if got := readFields(t, "", media, body); got.quantity != want.quantity || got.user != want.user || got.group != want.group || !slices.Equal(got.wrong, want.wrong) {
				t.Errorf("%s is read as %+v, the query as %+v", body, got, want)
			}
		}
	})
}

// fields are what was read, and the names of those that were rejected.
type fields struct {
	quantity int64
	user     string
	group    bool
	wrong    []string
}

func readFields(t *testing.T, query, media, body string) (got fields) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop/deduct?"+query, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", media)
	f := readForm(r, "quantity", "user_id", "group")
	must.Do(t, f.unread)
	got.quantity, got.user, got.group = f.whole("quantity", 1, 1_000_000), f.user("user_id"), f.flag("group")
	for _, e := range f.errs {
		got.wrong = append(got.wrong, e.Field)
	}
	return got
}

// What is allowed is allowed to its edge, and what is not is named with what was sent.
func TestTheEdgesOfAField(t *testing.T) {
	whole := func(f *form) { f.whole("field", 1, 9) }
	flag := func(f *form) { f.flag("field") }
	user := func(f *form) { f.user("field") }
	text := func(f *form) { f.text("field", 4) }
	visible := func(f *form) { f.visible("field", 4) }
	duration := func(f *form) { Form{form: f}.Duration("field", time.Second, time.Minute) }
	const number, truth, buyer = "field must be a whole number from 1 to 9, not ", "field must be true or false, not ", "field must be text or a whole number, not "
	const printable, ascii = "field must be 1 to 4 printable characters, not ", "field must be 1 to 4 visible ASCII characters, not "
	for _, c := range []struct {
		json string
		read func(*form)
		want string // empty: it is allowed
	}{
		{`1`, whole, ""},
		{`9`, whole, ""},
		{`0`, whole, number + `0`},
		{`10`, whole, number + `10`},
		{`"1"`, whole, number + `"1"`},
		{`null`, whole, `field is missing; it must be a whole number from 1 to 9`},
		{`1.5`, whole, number + `1.5`},
		{`1e0`, whole, number + `1e0`},
		{`-1`, whole, number + `-1`},
		{`9223372036854775808`, whole, number + `9223372036854775808`},
		{`true`, whole, number + `true`},
		{`false`, flag, ""},
		{`null`, flag, truth + `null`},
		{`1`, flag, truth + `1`},
		{`"true"`, flag, truth + `"true"`},
		{`1090`, user, ""},
		{`"u-1"`, user, ""},
		{`1.5`, user, buyer + `1.5`},
		{`-1`, user, buyer + `-1`},
		{`true`, user, buyer + `true`},
		{`null`, user, buyer + `null`},
		{`" 7"`, user, `field must not begin or end with a space, not " 7"`},
		{`"éééé"`, text, ""},
		{`"ééééé"`, text, printable + `"ééééé"`},
		{`1234`, text, ""},
		{`"a\nb"`, text, printable + `"a\nb"`},
		{`"a\u200bb"`, text, printable + `"a\u200bb"`},
		{`true`, text, printable + `true`},
		{`"!~~!"`, visible, ""},
		{`"!~~!~"`, visible, ascii + `"!~~!~"`},
		{`" "`, visible, ascii + `" "`},
		{`"é"`, visible, ascii + `"é"`},
		{`1`, visible, ascii + `1`},
		{`"1s"`, duration, ""},
		{`"1m"`, duration, ""},
		{`"999ms"`, duration, `field must be a duration from 1s to 1m0s such as 2s or 250ms, not "999ms"`},
		{`"61s"`, duration, `field must be a duration from 1s to 1m0s such as 2s or 250ms, not "61s"`},
	} {
		f := readForm(jsonRequest(t, "", `{"field": `+c.json+`}`), "field")
		c.read(f)
		should.Be(t, said(f), c.want, c.json)
	}
}

func jsonRequest(t *testing.T, query, body string) *http.Request {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop/deduct?"+query, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// said is what the errors of a form say.
func said(f *form) string {
	lines := make([]string, 0, len(f.errs))
	for _, e := range f.errs {
		lines = append(lines, e.Field+" "+e.Error)
	}
	return strings.Join(lines, "; ")
}

func TestAFieldIsGivenOnceWhereverItIs(t *testing.T) {
	for _, c := range []struct{ query, body, want string }{
		{"a=1&a=2", "", "a is given twice in the query; once is allowed"},
		{"", `{"a": 1, "a": 1}`, "a is given twice in the body; once is allowed"},
		{"a=1", `{"a": 1}`, "a is given in the query and in the body; once is allowed"},
		{"a=1", `{"b": 1}`, "b is not a field here; allowed are a"},
	} {
		f := readForm(jsonRequest(t, c.query, c.body), "a")
		should.Be(t, said(f), c.want, c.query, c.body)
	}
}

func TestABodyIsOneWholeObject(t *testing.T) {
	for _, body := range []string{`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":nul`, `{"a":1}x`, `{"a":1}{}`, `[1]`, `1`, `x`, `{"a":[]}`} {
		if readForm(jsonRequest(t, "", body), "a").err() == nil {
			t.Errorf("%s is read", body)
		}
	}
}

// What has arrived of a body that breaks off may be a whole form: "quantity=1" of "quantity=10".
func TestABodyThatBreaksOffIsNotRead(t *testing.T) {
	for media, body := range map[string]string{"application/x-www-form-urlencoded": "a=1", "application/json": `{"a": 1}`} {
		r := jsonRequest(t, "", "")
		r.Header.Set("Content-Type", media)
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)))
		err := readForm(r, "a").err()
		if p := problemOf(err); p.Status != http.StatusBadRequest || !strings.HasPrefix(p.Detail, "body could not be read") {
			t.Errorf("%s: %v", media, err)
		}
	}
}

func TestTheEdgesOfAnIdempotencyKey(t *testing.T) {
	for _, c := range []struct {
		keys []string
		ok   bool
	}{
		{[]string{"!"}, true},
		{[]string{"~"}, true},
		{[]string{strings.Repeat("k", stock.MaxRequestID)}, true},
		{[]string{strings.Repeat("k", stock.MaxRequestID+1)}, false},
		{[]string{""}, false},
		{[]string{"a b"}, false},
		{[]string{"a\x7f"}, false},
		{[]string{"schlüssel"}, false},
		{[]string{"one", "two"}, false},
	} {
		r, f := jsonRequest(t, "", ""), new(form)
		r.Header["Idempotency-Key"] = c.keys
		if got := f.idempotencyKey(r); (got == c.keys[0] && len(f.errs) == 0) != c.ok {
			t.Errorf("%q is read as %q, %s", c.keys, got, said(f))
		}
	}
}

// What is quoted is bounded in characters, whatever bytes they have.
func TestAQuoteIsBoundedInCharacters(t *testing.T) {
	for _, letter := range []string{"x", "é", "汉", "😀"} {
		whole := strings.Repeat(letter, maxQuoted)
		should.Be(t, shorten(whole, maxQuoted), whole, "is cut to")
		should.Be(t, shorten(whole+letter, maxQuoted), whole+"…", "one more is cut to")
	}
}

package handler

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
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
		object, err := json.Marshal(map[string]any{"quantity": quantity, "user_id": user, "group": group})
		if err != nil {
			t.Fatal(err)
		}
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
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop/deduct?"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	f, err := readForm(r, "quantity", "user_id", "group")
	if err != nil {
		t.Fatalf("%s%s is not well formed: %v", query, body, err)
	}
	got.quantity, got.user, got.group = f.whole("quantity", 1, 1_000_000), f.user("user_id"), f.flag("group")
	for _, e := range f.errs {
		got.wrong = append(got.wrong, e.Field)
	}
	return got
}

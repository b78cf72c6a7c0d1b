package buyer_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/buyer"
)

func TestAHeaderIsBelievedFromATrustedPeerAlone(t *testing.T) {
	var proxies []netip.Prefix
	for text := range strings.FieldsSeq("10.1.0.0/16 192.0.2.7/32 2001:db8::/32 fe80::/10") {
		proxies = append(proxies, netip.MustParsePrefix(text))
	}
	h := buyer.NewHeader("x-stockd-buyer", proxies)
	for _, c := range []struct {
		peer  string
		value []string
		want  string
		wrong string
	}{
		{"10.1.2.3:4000", []string{"u-1"}, "u-1", ""},
		{"[::ffff:10.1.2.3]:4000", []string{"u-1"}, "u-1", ""},
		{"192.0.2.7:4000", []string{"7"}, "7", ""},
		{"[2001:db8::1]:4000", []string{"Andre\u0301"}, "Andr\u00e9", ""},
		{"[fe80::7%eth0]:4000", []string{"u-1"}, "u-1", ""},
		{"10.1.2.3:4000", []string{"\ufb01"}, "\ufb01", ""}, // a ligature is not its letters: another buyer may have these
		{"192.0.2.8:4000", []string{"u-1"}, "", ""},
		{"10.2.0.1:4000", []string{" wrong "}, "", ""},
		{"@", []string{"u-1"}, "", ""},
		{"10.1.2.3:4000", nil, "", ""},
		{"10.1.2.3:4000", []string{""}, "", ""},
		{"10.1.2.3:4000", []string{"u-1", "u-2"}, "", "given 2 times"},
		{"10.1.2.3:4000", []string{"u-1 "}, "", "space"},
		{"10.1.2.3:4000", []string{strings.Repeat("é", 65)}, "", "1 to 64"},
		{"10.1.2.3:4000", []string{"\xff"}, "", "printable"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/deduct", nil) //nolint:noctx // it is not sent
		r.RemoteAddr = c.peer
		r.Header["X-Stockd-Buyer"] = c.value
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		got, err := h.From(r)
		if got.ID != c.want || (err != nil) != (c.wrong != "") {
			t.Errorf("%s with %q is %+v (%v), want %q", c.peer, c.value, got, err, c.want)
		}
		if wrong, ok := errors.AsType[*buyer.HeaderError](err); err != nil && (!ok || wrong.Header != "X-Stockd-Buyer" || !strings.Contains(wrong.Reason, c.wrong)) {
			t.Errorf("%s with %q: %v, want %q", c.peer, c.value, err, c.wrong)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"u-1", " 7", "7 ", "Andre\u0301", "\xff", strings.Repeat("\u0344", 64), "小明", "a\u00a0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := buyer.Canonical(text)
		if err != nil {
			return
		}
		if again, err := buyer.Canonical(id); err != nil || again != id || id == "" || strings.TrimSpace(id) != id {
			t.Errorf("%q is %q, and that is %q (%v)", text, id, again, err)
		}
	})
}

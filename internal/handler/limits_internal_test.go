package handler

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/should"
)

// A client with an IPv6 address has more of them than could be remembered.
func TestAddressesAreCountedByTheirNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":          "192.0.2.1",
		"::ffff:192.0.2.1":   "192.0.2.1", // as a proxy on a dual-stack socket sends it
		"2001:db8:1:2::1":    "2001:db8:1:2::/64",
		"2001:db8:1:2:f::99": "2001:db8:1:2::/64",
		"fe80::1%eth0":       "fe80::/64",
	} {
		should.Be(t, network(address), want, address)
	}
}

// Of what a trusted proxy sends, only X-Forwarded-For counts, and of that the right-most
// address that is not a trusted proxy's: whatever stands left of it, or in another
// header, a client may have written itself.
func TestTheAddressOfAClientIsWhatTheProxiesAppended(t *testing.T) {
	const proxy = "10.0.0.1:40000"
	type headers = http.Header
	for name, c := range map[string]struct {
		peer string
		sent headers
		want string
	}{
		"a proxy names a client":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP beside it":          {proxy, headers{"X-Real-Ip": {"198.51.100.9"}, "X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP alone":              {proxy, headers{"X-Real-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"other headers":                {proxy, headers{"Forwarded": {"for=198.51.100.9"}, "X-Client-Ip": {"198.51.100.9"}, "Cf-Connecting-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"a forged address on the left": {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1"}}, "192.0.2.1"},
		"several hops":                 {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1, 10.0.0.3,10.0.0.2"}}, "192.0.2.1"},
		"a line of each":               {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1"}}, "192.0.2.1"},
		"a line of each, and a hop":    {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1, 10.0.0.2"}}, "192.0.2.1"},
		"nothing but proxies":          {proxy, headers{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"garbage":                      {proxy, headers{"X-Forwarded-For": {"' OR 1=1"}}, "10.0.0.1"},
		"garbage on the left":          {proxy, headers{"X-Forwarded-For": {"' OR 1=1, 192.0.2.1"}}, "192.0.2.1"},
		"garbage on the right":         {proxy, headers{"X-Forwarded-For": {"192.0.2.1, unknown"}}, "10.0.0.1"},
		"an address with a port":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1:1234"}}, "10.0.0.1"},
		"nothing":                      {proxy, headers{"X-Forwarded-For": {""}}, "10.0.0.1"},
		"IPv6":                         {"[2001:db8::1]:40000", headers{"X-Forwarded-For": {"2001:db8:1:2::5"}}, "2001:db8:1:2::5"},
		"IPv4 in IPv6":                 {"[::ffff:10.0.0.1]:40000", headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"a zone":                       {proxy, headers{"X-Forwarded-For": {"fe80::1%eth0"}}, "10.0.0.1"},
		"a peer that is not trusted":   {"192.0.2.7:40000", headers{"X-Forwarded-For": {"198.51.100.9"}, "X-Real-Ip": {"198.51.100.9"}}, "192.0.2.7"},
		"a peer that has a zone":       {"[fe80::1%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "fe80::1"}, // all of its /64 are limited as one
		"a proxy that has a zone":      {"[fe80::2%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "198.51.100.9"},
	} {
		t.Run(name, func(t *testing.T) {
			should.Be(t, clientOf(c.peer, c.sent), c.want, c.sent, c.peer)
		})
	}
}

// clientOf is the client that a listener counts a request for.
func clientOf(peer string, sent http.Header) (address string) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), MaxBody: 1024, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("fe80::2/128")}}, public)
	e.GET("/", func(c *gin.Context) { address = c.ClientIP() })
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr, r.Header = peer, sent
	e.ServeHTTP(httptest.NewRecorder(), r)
	return address
}

package handler

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzHost reads any Host header as a browser would read the host of a page: two readers
// that differ would let a page of another name in.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"127.0.0.1:8081", "[::1]:8081", "::1", "localhost", "LOCALHOST.:1", "evil.example", "127.0.0.1.evil.example:80", "[::1", "a:b:c", "[fe80::1%25eth0]:1", ":1", "", "evil.example:localhost"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		host := hostOf(header)
		_, err := netip.ParseAddr(host)
		if err != nil && host != "localhost" {
			return // it is served only where it is listed
		}
		page, err := url.Parse("http://" + header + "/")
		if err != nil || page.Host != header {
			return // no browser goes there
		}
		name := strings.ToLower(strings.TrimSuffix(page.Hostname(), "."))
		if _, err := netip.ParseAddr(name); err != nil && name != "localhost" {
			t.Errorf("%q is read as %q, and by a browser as %q", header, host, name)
		}
	})
}

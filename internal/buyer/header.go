package buyer

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// Header is the source that trusts a header of trusted proxies.
type Header struct {
	name    string
	proxies []netip.Prefix
}

// NewHeader trusts the header on connections from the proxies. A proxy must set the header or remove
// it: what its client sent is not the buyer.
func NewHeader(name string, proxies []netip.Prefix) *Header {
	return &Header{name: http.CanonicalHeaderKey(name), proxies: proxies}
}

// From reads the header. That of any other peer is ignored.
func (h *Header) From(r *http.Request) (Buyer, error) {
	values := r.Header.Values(h.name)
	if len(values) == 0 || !h.trusts(r.RemoteAddr) {
		return Buyer{}, nil
	}
	if len(values) > 1 {
		return Buyer{}, &HeaderError{h.name, fmt.Sprintf("is given %d times; once is allowed", len(values))}
	}
	if values[0] == "" {
		return Buyer{}, nil
	}
	id, err := Canonical(values[0])
	if err != nil {
		return Buyer{}, &HeaderError{h.name, err.Error()}
	}
	return Buyer{ID: id}, nil
}

func (h *Header) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	address := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(h.proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

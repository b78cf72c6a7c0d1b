package config

import (
	"fmt"
	"net"

	"github.com/stockd/stockd/internal/admintoken"
)

// Warning is a value that is allowed but risky.
type Warning struct{ Key, Problem string }

// Warnings lists the risks of a configuration. They show no secret.
func (c Config) Warnings() []Warning {
	var list []Warning
	add := func(risk bool, key, format string, args ...any) {
		if risk {
			list = append(list, Warning{key, fmt.Sprintf(format, args...)})
		}
	}
	if token := c.Admin.Token.Reveal(); token != "" {
		if err := admintoken.Weak(token); err != nil {
			add(true, "admin.token", "%v", err)
		}
	}
	for _, f := range fields(&c) {
		backend := !f.within("admin") && !f.within("buyer")
		add(f.secret() != nil && backend && admintoken.Published(f.secret().Reveal()), f.key, "is an example from stockd's documents")
	}
	add(c.Admin.Tokens().Any() && c.Admin.TLS.CertFile == "" && !onLoopback(c.Admin.Listen), "admin.listen",
		"the token crosses the network %s unencrypted: set admin.tls.cert_file, or listen on the loopback", c.Admin.Listen)
	for _, network := range c.HTTP.Proxies() {
		add(network.Bits() == 0, "http.trusted_proxies", "%s trusts every client: each may claim any address", network)
	}
	add(c.Limit.AddressRate > 0 && len(c.HTTP.TrustedProxies) == 0 && !onLoopback(c.HTTP.Listen), "limit.address_rate",
		"http.trusted_proxies is empty: behind a balancer all clients share the limit of its address")
	return list
}

// onLoopback reports whether a listener is reachable from this machine only.
func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

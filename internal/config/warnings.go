package config

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/stockd/stockd/internal/admintoken"
)

// Warning is a value that is allowed, and a risk.
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
	for _, s := range c.backendSecrets() {
		add(admintoken.Published(s.secret.Reveal()), s.key, "is an example of stockd's documents")
	}
	add(c.Admin.Tokens().Any() && c.Admin.TLS.CertFile == "" && !onLoopback(c.Admin.Listen), "admin.listen",
		"the token crosses the network %s unencrypted: set admin.tls.cert_file, or listen on the loopback", c.Admin.Listen)
	for _, network := range c.HTTP.TrustedProxies {
		add(everyAddress(network), "http.trusted_proxies", "%s trusts every client: each may claim any address", network)
	}
	add(c.Limit.AddressRate > 0 && len(c.HTTP.TrustedProxies) == 0 && !onLoopback(c.HTTP.Listen), "limit.address_rate",
		"http.trusted_proxies is empty: behind a balancer all clients share the limit of its address")
	return list
}

// keyedSecret is a secret with its key.
type keyedSecret struct {
	key    string
	secret Secret
}

func (c Config) backendSecrets() []keyedSecret {
	return []keyedSecret{
		{"database.password", c.Database.Password},
		{"redis.password", c.Redis.Password},
		{"redis.sentinel_password", c.Redis.SentinelPassword},
		{"redlock.password", c.Redlock.Password},
		{"zookeeper.auth", c.ZooKeeper.Auth},
		{"etcd.password", c.Etcd.Password},
	}
}

// everyAddress tells whether a network, which has been checked, is all there is.
func everyAddress(network string) bool {
	prefix, err := netip.ParsePrefix(network)
	return err == nil && prefix.Bits() == 0
}

// onLoopback tells whether an address to listen on can be reached from this machine alone.
func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

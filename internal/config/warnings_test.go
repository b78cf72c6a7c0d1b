package config_test

import (
	"fmt"
	"strings"
	"testing"
)

const strong = "--admin-token=0123456789abcdef-owner"

// Each risk is named with its key, and what is none is not.
func TestRisksAreNamedWithTheirKey(t *testing.T) {
	own := issue(t, authority(t), "stockd")
	pair := []string{"--admin-tls-cert-file=" + own.CertFile, "--admin-tls-key-file=" + own.KeyFile}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"the defaults", nil, nil},
		{"a good token", []string{strong}, nil},
		{"a weak token", []string{"--admin-token=aaaaaaaaaaaaaaaa"}, []string{"admin.token must have at least 8 different"}},
		{"the token of a document", []string{"--admin-token=please-change-this-token"}, []string{"admin.token must not be an example"}},
		{"a token across the network", []string{strong, "--admin-listen=:8081"}, []string{"admin.listen the token crosses the network"}},
		{"across the network in TLS", append(pair, strong, "--admin-listen=:8081"), nil},
		{"on the loopback", []string{strong, "--admin-listen=[::1]:8081"}, nil},
		{"without a token it is closed", []string{"--admin-listen=:8081"}, nil},
		{"all are trusted", []string{"--http-trusted-proxies=10.0.0.0/8,::/0"}, []string{"http.trusted_proxies ::/0"}},
		{"a balancer that is not known", []string{"--limit-address-rate=5", "--http-listen=:8080"}, []string{"limit.address_rate http.trusted_proxies is empty"}},
		{"a balancer that is", []string{"--limit-address-rate=5", "--http-listen=:8080", "--http-trusted-proxies=10.0.0.1"}, nil},
		{"no limit of an address", []string{"--http-listen=:8080"}, nil},
		{"no balancer", []string{"--limit-address-rate=5"}, nil},
		{"passwords of documents", []string{"--redis-password=an-example-for-redis", "--etcd-password=an-example-for-etcd"}, []string{"redis.password is an example", "etcd.password is an example"}},
	} {
		var got []string
		for _, w := range load(t, "", c.args...).Warnings() {
			got = append(got, w.Key+" "+w.Problem)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: the risks are %q, want %q", c.name, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: a risk is %q, want %q", c.name, got[i], want)
			}
		}
	}
}

// The admin API is reached by the host that it listens on, and by what is added.
func TestTheHostsOfTheAdminAPI(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:8081": "[127.0.0.1 shop.internal *]", ":8081": "[shop.internal *]", "Admin.Shop:8081": "[admin.shop shop.internal *]"} {
		c := load(t, "", "--admin-listen="+listen, "--admin-hosts=Shop.Internal., *")
		if got := fmt.Sprint(c.Admin.HostNames()); got != want {
			t.Errorf("listening on %s it is reached by %s, want %s", listen, got, want)
		}
	}
}

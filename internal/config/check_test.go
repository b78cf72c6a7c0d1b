package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/should"
)

// Each row is a flag with the values that are allowed at the edge of its range, and those
// that are not any more.
func TestTheEdgesOfWhatIsAllowed(t *testing.T) {
	header := []string{"--buyer-from=header", "--http-trusted-proxies=::1"}
	for _, c := range []struct {
		flag              string
		also              []string
		allowed, rejected []string
	}{
		{"replica", nil, []string{"", "shop-1", strings.Repeat("é", 128)}, []string{strings.Repeat("é", 129)}},
		{"audit-every", nil, strings.Fields("0 1s 24h"), strings.Fields("999ms 1ns")},
		{"limit-user-rate", nil, strings.Fields("0 0.001 1000000"), strings.Fields("0.0009 1000000.5 -0.001 NaN Inf")},
		{"limit-address-rate", nil, strings.Fields("0 0.001 1000000"), strings.Fields("0.0009 1000000.5")},
		{"queue-items", strings.Fields("--redis-addresses=a:1 --queue-secret=" + strings.Repeat("s", 32)), append(strings.Fields("all 1 1,7"), ""), strings.Fields("none 0 -1 1,all 1,none")},
		{"queue-items", strings.Fields("--queue-secret=" + strings.Repeat("s", 32)), []string{""}, strings.Fields("all")}, // there is no Redis
		{"queue-secret", strings.Fields("--redis-addresses=a:1 --queue-items=7"), []string{strings.Repeat("s", 32)}, []string{"", strings.Repeat("s", 31)}},
		{"group-queue", nil, strings.Fields("256 1000000"), strings.Fields("255 1000001")},
		{"http-listen", nil, strings.Fields("127.0.0.1:0 127.0.0.1:65535 :1 [::1]:80"), strings.Fields("127.0.0.1:65536 127.0.0.1:-1 127.0.0.1:http 127.0.0.1: ::1")},
		{"admin-listen", nil, strings.Fields("127.0.0.1:0 127.0.0.1:65535 :1 [::1]:80"), strings.Fields("127.0.0.1:65536 127.0.0.1 127.0.0.1:http")},
		{"admin-token", nil, strings.Fields("0123456789abcdef aaaaaaaaaaaaaaaa please-change-this-token"), strings.Fields("0123456789abcde")},
		{"admin-token", strings.Fields("--admin-required=true"), strings.Fields("0123456789abcdef"), strings.Fields("0123456789abcde aaaaaaaaaaaaaaaa please-change-this-token")},
		{"lock-wait", strings.Fields("--deduct-timeout=5s --database-lock-wait=1s"), strings.Fields("4999ms"), strings.Fields("5s")},
		{"database-lock-wait", strings.Fields("--deduct-timeout=7s"), strings.Fields("6999ms"), strings.Fields("7s")},
		{"redis-timeout", strings.Fields("--redis-addresses=a:1 --lock-wait=3s"), strings.Fields("2999ms"), strings.Fields("3s")},
		{"redis-timeout", strings.Fields("--redlock-addresses=a:1,b:1,c:1 --lock-wait=3s"), strings.Fields("2999ms"), strings.Fields("3s")},
		{"redis-timeout", strings.Fields("--redis-addresses=a:1 --redlock-addresses=b:1,c:1,d:1 --lock-wait=3s"), strings.Fields("2999ms"), strings.Fields("3s")},
		{"redis-timeout", strings.Fields("--lock-wait=1s"), strings.Fields("1s"), nil}, // there is no Redis
		{"redis-addresses", nil, strings.Fields("a:1"), strings.Fields("a:1,b:1 u:p@a:1 a")},
		{"redis-addresses", strings.Fields("--redis-cluster=true"), strings.Fields("a:1 a:1,b:1"), nil},
		{"redis-addresses", strings.Fields("--redis-master=m"), strings.Fields("a:1 a:1,b:1"), nil},
		{"redlock-addresses", nil, strings.Fields("a:1,b:1,c:1 a:1,b:1,c:1,d:1,e:1"), strings.Fields("a:1 a:1,b:1 a:1,b:1,c:1,d:1")},
		{"reserve-ttl", strings.Fields("--reserve-longest=20m"), strings.Fields("1s 20m"), strings.Fields("20m1s 21m")},
		{"prefix", nil, strings.Fields("a z A Z 0 9 shop-1 a.b a_b .a"), strings.Fields(". .. a/b a{b a*b a@b a[b a`b é a:b")},
		{"lab-without", strings.Fields("--lab-enabled=true"), append(strings.Fields("reaper one-server,pause pool"), ""), strings.Fields("no reaper,no")},
		{"http-max-deductions", nil, strings.Fields("1 1000000"), strings.Fields("0 1000001")},
		{"http-max-connections", nil, strings.Fields("0 1000000"), strings.Fields("-1 1000001")},
		{"http-connection-rate", nil, strings.Fields("0 1000000"), strings.Fields("-1 1000001")},
		{"http-read-timeout", nil, strings.Fields("100ms"), strings.Fields("99ms 0s")},
		{"http-idle-timeout", nil, strings.Fields("1s"), strings.Fields("999ms")},
		{"http-drain", nil, strings.Fields("0s"), strings.Fields("-1s")},
		{"limit-user-burst", nil, strings.Fields("1 1000000"), strings.Fields("0 1000001")},
		{"database-max-open", nil, strings.Fields("1 10000"), strings.Fields("0 10001")},
		{"database-lock-wait", nil, strings.Fields("1s"), strings.Fields("999ms")},
		{"deduct-max-quantity", nil, strings.Fields("1 1000000"), strings.Fields("0 1000001")},
		{"lock-ttl", nil, strings.Fields("500ms"), strings.Fields("499ms")},
		{"lock-connections", nil, strings.Fields("2 10000"), strings.Fields("1 10001")},
		{"etcd-endpoints", nil, strings.Fields("http://a:1 https://a:1 https://a:1,https://b:1"), strings.Fields("a:1 http://a ftp://a:1 http://a:1,b:1 http://u:p@a:1 https://a:1,http://b:1")},
		{"zookeeper-auth", nil, strings.Fields("u:p"), strings.Fields("u")},
		{"trace-endpoint", nil, strings.Fields("http://a:1 https://a:1 http://a"), strings.Fields("a:1 ftp://a http:// http:///x http://u@a:1 http://u:p@a:1 http://a:1?k=v http://a:1#f ://")},
		{"trace-sample", nil, strings.Fields("0 0.5 1"), strings.Fields("-0.001 1.001 NaN")},
		{"http-trusted-proxies", nil, strings.Fields("10.0.0.1 10.0.0.0/8 ::1 fd00::/8 10.0.0.1,::1 0.0.0.0/0 ::ffff:10.0.0.2 ::ffff:10.0.0.0/104"), strings.Fields("balancer 10.0.0.0/33 10.0.0.1,balancer fe80::1%eth0 fe80::%eth0/10 ::ffff:0:0/95 ::ffff:10.0.0.2/32")},
		{
			"http-trusted-proxies",
			[]string{"--admin-required=true", "--admin-token=0123456789abcdef-owner"},
			strings.Fields("10.0.0.0/8 ::1 0.0.0.0/1 ::ffff:0:0/97"), strings.Fields("0.0.0.0/0 ::/0 10.0.0.1,0.0.0.0/0 ::ffff:0:0/96"),
		},
		{"buyer-header", header, strings.Fields("X-Buyer X-a-z-A-Z-0-9 !#$%&'*+-.^_`|~ z Z 9"), strings.Fields("X/Buyer X:Buyer X@B X[B X{B é X(B cookie host authorization idempotency-key x-request-id content-length content-type connection x-forwarded-for")},
		{"buyer-header", strings.Fields("--buyer-from=request"), strings.Fields("X/Buyer"), nil}, // it is not read
		{"buyer-secret", strings.Fields("--buyer-from=token"), []string{strings.Repeat("x", 32)}, []string{strings.Repeat("x", 31), ""}},
		{"buyer-jwks-file", strings.Fields("--buyer-from=token"), strings.Fields("keys"), nil},
		{"buyer-audience", strings.Fields("--buyer-from=request"), nil, strings.Fields("shop")},
		{"database-tls-enabled", strings.Fields("--database-driver=sqlite"), strings.Fields("false"), strings.Fields("true")},
		{"admin-tokens-file", nil, nil, strings.Fields("/nonexistent")},
	} {
		for _, values := range []struct {
			list []string
			ok   bool
		}{{c.allowed, true}, {c.rejected, false}} {
			for _, value := range values.list {
				_, err := config.Load("", flags(t, append([]string{"--" + c.flag + "=" + value}, c.also...)...))
				if (err == nil) != values.ok {
					t.Errorf("--%s=%s with %v: %v, want it allowed: %v", c.flag, value, c.also, err, values.ok)
				}
			}
		}
	}
}

func TestWhoMayChooseAStrategy(t *testing.T) {
	for _, c := range []struct {
		choose, listen string
		want           bool
	}{
		{"auto", "127.0.0.1:8080", true},
		{"auto", "127.8.9.1:0", true},
		{"auto", "[::1]:8080", true},
		{"auto", "localhost:8080", true},
		{"auto", "0.0.0.0:8080", false}, // the Docker image
		{"auto", "[::]:8080", false},
		{"auto", ":8080", false},
		{"auto", "10.0.0.7:8080", false},
		{"auto", "localhost.example.com:8080", false},
		{"auto", "127.0.0.1.example.com:8080", false},
		{"true", "0.0.0.0:8080", true},
		{"false", "127.0.0.1:8080", false},
	} {
		got := config.Config{HTTP: config.HTTP{Listen: c.listen}, Deduct: config.Deduct{Choose: c.choose}}.MayChoose()
		should.Be(t, got, c.want, "deduct.choose … on", c.choose, c.listen)
	}
}

const strong = "--admin-token=0123456789abcdef-owner"

// An address of version 4 that is written in version 6 is that of version 4, as peers have it.
func TestTheProxiesAreThoseOfPeers(t *testing.T) {
	var want []netip.Prefix
	for text := range strings.FieldsSeq("10.0.0.2/32 10.0.0.0/8 10.1.0.0/16 2001:db8::1/128 0.0.0.0/0") {
		want = append(want, netip.MustParsePrefix(text))
	}
	should.Equal(t, load(t, "", "--http-trusted-proxies=::ffff:10.0.0.2, ::ffff:10.0.0.0/104, 10.1.2.3/16, 2001:db8::1, ::ffff:0:0/96").HTTP.Proxies(), want, "they are")
}

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
		should.Be(t, fmt.Sprint(c.Admin.HostNames()), want, "listening on … it is reached", listen)
	}
}

package config_test

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/config"
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
		{"group-queue", nil, strings.Fields("256 1000000"), strings.Fields("255 1000001")},
		{"group-queue", strings.Fields("--group-batch=1"), strings.Fields("1"), strings.Fields("0")},
		{"http-listen", nil, strings.Fields("127.0.0.1:0 127.0.0.1:65535 :1 [::1]:80"), strings.Fields("127.0.0.1:65536 127.0.0.1:-1 127.0.0.1:http 127.0.0.1: ::1")},
		{"admin-listen", nil, strings.Fields("127.0.0.1:0 127.0.0.1:65535 :1 [::1]:80"), strings.Fields("127.0.0.1:65536 127.0.0.1 127.0.0.1:http")},
		{"admin-token", nil, strings.Fields("0123456789abcdef aaaaaaaaaaaaaaaa please-change-this-token"), strings.Fields("0123456789abcde")},
		{"admin-token", strings.Fields("--admin-required=true"), strings.Fields("0123456789abcdef"), strings.Fields("0123456789abcde aaaaaaaaaaaaaaaa please-change-this-token")},
		{"optimistic-max", strings.Fields("--optimistic-step=2ms"), strings.Fields("2ms 3ms"), strings.Fields("1ms")},
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
		{"redis-stock-prefix", nil, strings.Fields("a a:b"), append(strings.Fields("{a a} a{b"), "a b", "a\nb")},
		{"etcd-endpoints", nil, strings.Fields("http://a:1 https://a:1 https://a:1,https://b:1"), strings.Fields("a:1 http://a ftp://a:1 http://a:1,b:1 http://u:p@a:1 https://a:1,http://b:1")},
		{"zookeeper-auth", nil, strings.Fields("u:p"), strings.Fields("u")},
		{"trace-endpoint", nil, strings.Fields("http://a:1 https://a:1 http://a"), strings.Fields("a:1 ftp://a http:// http:///x http://u@a:1 http://u:p@a:1 http://a:1?k=v http://a:1#f ://")},
		{"trace-sample", nil, strings.Fields("0 0.5 1"), strings.Fields("-0.001 1.001 NaN")},
		{"http-trusted-proxies", nil, strings.Fields("10.0.0.1 10.0.0.0/8 ::1 fd00::/8 10.0.0.1,::1 0.0.0.0/0"), strings.Fields("balancer 10.0.0.0/33 10.0.0.1,balancer fe80::1%eth0")},
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

package handler

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/rate"
)

// Tokens are the bearer tokens of the admin API. They must be compared in constant time.
type Tokens interface {
	// Find returns the name of a token.
	Find(token string) (name string, ok bool)
}

// onlyHosts rejects requests for hosts that are not the admin API's. Otherwise a foreign page
// whose name resolves to this machine (DNS rebinding) would have the same origin. Such an
// attack needs a name, so that IP addresses are safe.
func onlyHosts(names []string) gin.HandlerFunc {
	return func(c *gin.Context) {
		host := hostOf(c.Request.Host)
		_, notAddress := netip.ParseAddr(host)
		if notAddress == nil || host == "localhost" || slices.Contains(names, host) || slices.Contains(names, "*") {
			return
		}
		rejectUnread(c, newProblem(http.StatusMisdirectedRequest, "misdirected-request", "The admin API does not serve this host").
			detail("it serves IP addresses, localhost, the host of admin.listen and those of admin.hosts, not %s", quote(value{text: host})))
	}
}

// hostOf is a Host header without its port, as names are compared.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// rejectUnread rejects a request whose token was not found. Gin has set Allow where there
// is a route of another method: the answer must not reveal that.
func rejectUnread(c *gin.Context, p problem) {
	c.Writer.Header().Del("Allow")
	answer(c, p)
}

// wrongTokens is how many wrong tokens an address may send within a minute.
const wrongTokens = 10

// gate admits only requests with a known token.
type gate struct {
	tokens   Tokens
	wrong    *rate.Limiter // by address
	observer Observer
	log      *slog.Logger
}

func newGate(tokens Tokens, o Options) *gate {
	return &gate{
		tokens: tokens, observer: o.Observer, log: o.Log,
		wrong: rate.New(rate.Rate{PerSecond: wrongTokens / time.Minute.Seconds(), Burst: wrongTokens}),
	}
}

// admit admits a known token at once: an admin that shares an address with an attacker must not be locked out with
// it. Every other request gets the same 401, or 429 from an address that has sent too many wrong tokens.
func (g *gate) admit(c *gin.Context) {
	token, given := bearerToken(c.Request.Header)
	if name, ok := g.tokens.Find(token); ok {
		noteToken(c, name)
		return
	}
	address, now := network(c.ClientIP()), time.Now()
	wait := g.wrong.Wait(address, now)
	if given && wait == 0 {
		wait = g.wrong.Take(address, now) // others of the address may have taken the last
		g.log.WarnContext(c.Request.Context(), "wrong admin token", append(about(c), "audit", true)...)
	}
	if wait > 0 {
		g.observer.RateLimited(byToken)
		rejectUnread(c, tooOften("this address has sent a wrong token", wait))
		return
	}
	rejectUnread(c, unauthorized())
}

// bearerToken reads the one Authorization header. given tells that there is one, also
// where the token is empty because it is not well formed.
func bearerToken(header http.Header) (token string, given bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", len(values) > 0
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return token, true
}

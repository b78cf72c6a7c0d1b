package handler

import (
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/rate"
)

// shedKey marks the context of a request whose purchase was shed.
const shedKey = "shed"

// Limits are the rate limits of the public API: User of the purchases of one buyer, Address of
// the requests of one client address.
type Limits struct {
	User, Address rate.Rate
}

// limitAddresses rejects requests beyond the rate of their address before it reads them. A shed
// purchase does not count, so that its retry is not throttled.
func limitAddresses(l *rate.Limiter, observer Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if l == nil {
			return
		}
		address := network(c.ClientIP())
		if wait := l.Take(address, time.Now()); wait > 0 {
			observer.RateLimited(byAddress)
			answer(c, tooOften("this address asks", wait))
			return
		}
		c.Next()
		if c.GetBool(shedKey) {
			l.GiveBack(address, time.Now())
		}
	}
}

// network is the unit of address limits: an IPv4 address, or the /64 of an IPv6 address, all of
// which one client usually has.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.WithZone("").Prefix(64) // never fails for IPv6
	return prefix.String()
}

func tooOften(subject string, wait time.Duration) problem {
	seconds := int(math.Ceil(wait.Seconds()))
	p := newProblem(http.StatusTooManyRequests, "rate-limited", "Too many requests").
		detail("%s too often; try again in %d s", subject, seconds)
	p.retryAfter = strconv.Itoa(seconds + rand.N(jitter))
	return p
}

package handler

import "github.com/gin-gonic/gin"

// Observer hears how requests fare. It is called from any goroutine, and must be
// quick.
type Observer interface {
	// Began and Ended are called around each request to a listener, "public" or
	// "admin". The route is its path as it was registered, and empty where there is
	// no such route; so the number of routes is bounded.
	Began(listener string)
	Ended(listener, route string, status int)
	// Shed is called for a purchase that found no place: the replica, its item or its
	// strategy has as many as it may have. full is "replica", "item" or "strategy".
	Shed(full string)
	// RateLimited is called for a request that came too soon after others of the
	// same, "user" or "address", or, by "token", from an address that has sent too
	// many wrong tokens.
	RateLimited(by string)
	// Panicked is called when serving a request ended in a panic.
	Panicked()
}

// The listeners, and whom requests are limited by.
const (
	public    = "public"
	admin     = "admin"
	byUser    = "user"
	byAddress = "address"
	byToken   = "token"
)

type unobserved struct{}

func (unobserved) Began(string)              {}
func (unobserved) Ended(string, string, int) {}
func (unobserved) Shed(string)               {}
func (unobserved) RateLimited(string)        {}
func (unobserved) Panicked()                 {}

// heard is who hears.
func (o Options) heard() Observer {
	if o.Observer == nil {
		return unobserved{}
	}
	return o.Observer
}

// observed tells of every request, also of one whose connection is cut.
func observed(heard Observer, listener string) gin.HandlerFunc {
	return func(c *gin.Context) {
		heard.Began(listener)
		defer func() { heard.Ended(listener, c.FullPath(), c.Writer.Status()) }()
		c.Next()
	}
}

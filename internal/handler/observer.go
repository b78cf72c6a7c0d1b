package handler

import "github.com/gin-gonic/gin"

// Observer is notified of requests. It is called from any goroutine and must not block.
type Observer interface {
	// Began and Ended are called around each request to a listener, "public" or
	// "admin". The route is its path as it was registered, and empty where there is
	// no such route; so the number of routes is bounded.
	Began(listener string)
	Ended(listener, route string, status int)
	// Shed is called for a purchase that was rejected because the "replica", the "item" or
	// the "strategy" serves as many purchases as it may.
	Shed(full string)
	// RateLimited is called for a request beyond the rate of its "user" or "address", or, by
	// "token", from an address that has sent too many wrong tokens.
	RateLimited(by string)
	// Panicked is called when a request panicked.
	Panicked()
}

// The names of listeners and of limits.
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

func (o Options) observer() Observer {
	if o.Observer == nil {
		return unobserved{}
	}
	return o.Observer
}

// observe notifies the observer of every request, also of one whose connection is cut.
func observe(observer Observer, listener string) gin.HandlerFunc {
	return func(c *gin.Context) {
		observer.Began(listener)
		defer func() { observer.Ended(listener, c.FullPath(), c.Writer.Status()) }()
		c.Next()
	}
}

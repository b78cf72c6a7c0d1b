package handler

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// within gives a route a deadline; 0 gives it none.
func within(limit time.Duration, serve gin.HandlerFunc) gin.HandlerFunc {
	if limit == 0 {
		return serve
	}
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		serve(c)
	}
}

// sendWithin is how long an answer may take to send that was long in the making.
const sendWithin = 5 * time.Second

// withinLong is within for a request that may take longer than the server lets others
// take, from their header to the end of their answer.
func withinLong(limit time.Duration, serve gin.HandlerFunc) gin.HandlerFunc {
	return within(limit, func(c *gin.Context) {
		if deadline, ok := c.Request.Context().Deadline(); ok {
			// A writer that has no deadlines has none to extend.
			_ = http.NewResponseController(c.Writer).SetWriteDeadline(deadline.Add(sendWithin))
		}
		serve(c)
	})
}

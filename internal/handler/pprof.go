package handler

import (
	"net/http"
	"net/http/pprof"
	profiles "runtime/pprof"

	"github.com/gin-gonic/gin"
)

// profile serves GET /debug/pprof/*profile of the admin API. There is no cmdline: flags may
// hold secrets. What net/http/pprof registers by itself is served nowhere, because no listener
// serves http.DefaultServeMux.
func profile(c *gin.Context) {
	switch name := c.Param("profile")[1:]; {
	case name == "profile":
		pprof.Profile(c.Writer, c.Request)
	case name == "trace":
		pprof.Trace(c.Writer, c.Request)
	case name == "symbol":
		pprof.Symbol(c.Writer, c.Request)
	case name == "":
		pprof.Index(c.Writer, c.Request)
	case profiles.Lookup(name) != nil:
		pprof.Handler(name).ServeHTTP(c.Writer, c.Request)
	default:
		answer(c, newProblem(http.StatusNotFound, "not-found", "Not found").
			detail("there is no profile of this name"))
	}
}

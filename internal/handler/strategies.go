package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// maxReason is the longest reason, in characters, for which a strategy is switched off.
const maxReason = 200

// switched is the answer to a switch.
type switched struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason,omitempty"`
}

// switchStrategy serves PUT /strategies/:name of the admin API: it switches a strategy on or
// off on all replicas.
func (s sale) switchStrategy(c *gin.Context) (any, error) {
	f := readAdminForm(c, "enabled", "reason")
	f.require("enabled", trueOrFalse)
	to := switched{Name: shorten(c.Param("name"), maxStrategy), Enabled: f.flag("enabled"), Reason: f.text("reason", maxReason)}
	switch {
	case to.Enabled:
		f.without("reason", "enabled is true")
	case to.Reason == "":
		f.failf("reason", "is missing; it must be 1 to %d printable characters, and buyers see it", maxReason)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	reason, off := s.options.Catalogue.SwitchedOff(to.Name)
	noteBefore(c, switched{Name: to.Name, Enabled: !off, Reason: reason})
	if err := s.switchTo(c, to); err != nil {
		return nil, err
	}
	s.options.Log.WarnContext(c.Request.Context(), "strategy switched", append(about(c), "strategy", to.Name, "enabled", to.Enabled, "reason", to.Reason,
		"items", s.options.Catalogue.ItemsThrough(to.Name))...)
	return to, nil
}

func (s sale) switchTo(c *gin.Context, to switched) error {
	ctx := c.Request.Context()
	switch {
	case to.Enabled:
		return s.options.Catalogue.SwitchOn(ctx, to.Name)
	case to.Name == s.options.Catalogue.Default().Strategy:
		return newProblem(http.StatusConflict, "default-strategy", "The default strategy cannot be switched off").
			detail("%s is deduct.strategy of this replica", to.Name)
	default:
		return s.options.Catalogue.SwitchOff(ctx, to.Name, to.Reason)
	}
}

func (s sale) strategies(c *gin.Context) (any, error) {
	return gin.H{"strategies": s.options.Catalogue.Describe(c.Request.Context())}, nil
}

package background

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// Rounds are work that a replica does at intervals.
type Rounds struct {
	// Doing names a round, and Failed is the event of one that failed, in the log.
	Doing, Failed string
	// Every is the pause before a round, and First that before the first one; 0: the same.
	First, Every time.Duration
	// Within bounds a round; the next one does what is left.
	Within time.Duration
	// Once logs of rounds that fail in a row the first alone.
	Once bool
	Log  *slog.Logger
}

// Repeat makes rounds until ctx ends, and logs those that fail; what ctx has cut off has not.
func (r Rounds) Repeat(ctx context.Context, round func(context.Context) error) {
	failing := false
	for wait := cmp.Or(r.First, r.Every); pause.For(ctx, wait) == nil; wait = r.Every {
		err := Guard(ctx, r.Log, r.Doing, func() error {
			bounded, cancel := context.WithTimeout(ctx, r.Within)
			defer cancel()
			return round(bounded)
		})
		if err != nil && ctx.Err() == nil && (!r.Once || !failing) {
			r.Log.WarnContext(ctx, r.Failed, "error", err, "again", r.Every)
		}
		failing = err != nil
	}
}

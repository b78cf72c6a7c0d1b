package step

import (
	"context"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// MoveClock has the clock of a master jump, by its number from 1, to so much ahead
// of the right time.
func MoveClock(master int, ahead time.Duration) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		if err := s.Masters.Nodes[master-1].Clock.Set(ahead); err != nil {
			return err
		}
		return s.Mark(fmt.Sprintf("master %d", master), "its clock is "+ahead.String()+" ahead")
	}
}

package step

import (
	"context"
	"fmt"
	"net/url"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// masters are those of the stage, or those of the run where it has none of its own.
func masters(s *scenario.Environment) *servers.Redlock {
	if s.Masters != nil {
		return s.Masters
	}
	return s.Backends.Redlock
}

// At has the next rule of a member be laid down before this master, from 1.
func (c *Cast) At(who string, master int) scenario.Step {
	return func(context.Context, *scenario.Environment) error {
		m := c.members[who]
		m.proxy = m.links[master-1]
		return nil
	}
}

// Arm lays a rule down before each of these masters, from 1, of which no step waits.
func (c *Cast) Arm(who string, rule servers.Rule, masters ...int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		for _, master := range masters {
			c.members[who].links[master-1].Arm(rule)
		}
		return s.Mark(who, fmt.Sprintf("before masters %v: %s of %s", masters, rule.Do, visible(rule.Sent)))
	}
}

// CutOff keeps a member from masters, from 1.
func (c *Cast) CutOff(who string, masters ...int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		for _, master := range masters {
			c.members[who].links[master-1].Cut()
		}
		return s.Mark(who, fmt.Sprintf("masters %v are out of its reach", masters))
	}
}

// KeysLeft is the figure of CountKeys.
const KeysLeft = "keys_left"

// CountKeys records how many masters have the key of the name.
func (c *Cast) CountKeys() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		left := 0
		for _, master := range masters(s).Nodes {
			client := master.Open()
			keys, err := client.Keys(ctx, "*{"+url.PathEscape(name(s))+"}:"+c.Lock).Result()
			_ = client.Close() // nothing is lost with it
			if err != nil {
				return fmt.Errorf("count the keys of %s: %w", c.Lock, err)
			}
			left += len(keys)
		}
		return s.Figure(KeysLeft, float64(left))
	}
}

package step

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// ThroughRedis puts a proxy between the replicas of a stage and their Redis.
func ThroughRedis(_ context.Context, s *scenario.Environment) (env []string, err error) {
	if err := proxy(s, s.Backends.Redis.Address); err != nil {
		return nil, err
	}
	return []string{"STOCKD_REDIS_ADDRESSES=" + s.Proxy.Address}, nil
}

// proxy puts the environment's proxy before a server.
func proxy(s *scenario.Environment, target string) (err error) {
	if s.Proxy, err = servers.NewProxy(target); err != nil {
		return err
	}
	s.Later(func() error { s.Proxy.Close(); return nil })
	return nil
}

// ProxyBefore puts a proxy before a replica; AtProxy is where buyers then go.
func ProxyBefore(replica int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		return proxy(s, s.URL(replica)[len("http://"):])
	}
}

// AtProxy is the URL of the environment's proxy.
func AtProxy(s *scenario.Environment) string { return "http://" + s.Proxy.Address }

// Arm lays down a rule at the proxy.
func Arm(r servers.Rule) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		s.Point = s.Proxy.Arm(r)
		return nil
	}
}

// Met waits until a request has met the rule that was armed last.
func Met() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		ctx, cancel := context.WithTimeoutCause(ctx, reachedWithin, fmt.Errorf("it was not met within %s", reachedWithin))
		defer cancel()
		if err := s.Point.Wait(ctx); err != nil {
			return err
		}
		return s.Mark("proxy", fmt.Sprintf("%s: %s", s.Point.Do, visible(s.Point.Sent)))
	}
}

// Pass lets go what the proxy holds.
func Pass() scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		s.Point.Pass()
		return s.Mark("proxy", "let go: "+visible(s.Point.Sent))
	}
}

// visible is the bytes of a rule for people.
func visible(sent string) string {
	out := make([]rune, 0, len(sent))
	for _, r := range sent {
		if r >= ' ' && r < 127 {
			out = append(out, r)
		}
	}
	return string(out)
}

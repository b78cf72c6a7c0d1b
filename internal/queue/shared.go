package queue

import (
	"context"
	"maps"
)

// Shared answers the keys of all calls that wait with one query, so that any number of them has one
// connection. Keys of different servers are in different queries.
type Shared[K comparable, V any] struct {
	queue *Queue[int, []K, map[K]V]
	on    func(K) int
}

// Query finds the values of keys. Keys without one are not in the answer.
type Query[K comparable, V any] func(ctx context.Context, keys ...K) (map[K]V, error)

// Share shares a query. Most bounds its keys, unless one call alone has more. Write and Weight are set here.
//
// On returns the number of the server that is asked for a key; nil: there is one server. The value may be on another server that
// does not answer, so a query that fails is repeated for each call.
func Share[K comparable, V any](query Query[K, V], on func(K) int, o Options[int, []K, map[K]V]) *Shared[K, V] {
	o.Weight = func(keys []K) int { return len(keys) }
	o.Write = func(ctx context.Context, _ int, calls []*Call[[]K, map[K]V]) {
		var keys []K
		for _, c := range calls {
			keys = append(keys, c.Ask...)
		}
		values, err := query(ctx, keys...)
		for _, c := range calls {
			if on != nil && err != nil && len(calls) > 1 {
				c.Answer(query(ctx, c.Ask...))
			} else {
				c.Answer(values, err)
			}
		}
	}
	return &Shared[K, V]{New(o), on}
}

// Get gives the values of keys. The map may hold those of other callers as well, and must not be written to.
func (s *Shared[K, V]) Get(ctx context.Context, keys ...K) (map[K]V, error) {
	if s.on == nil {
		return s.queue.Do(ctx, 0, keys)
	}
	byServer := make(map[int][]K, 1)
	for _, key := range keys {
		byServer[s.on(key)] = append(byServer[s.on(key)], key)
	}
	all := make(map[K]V, len(keys))
	for server, its := range byServer {
		values, err := s.queue.Do(ctx, server, its)
		if err != nil || len(byServer) == 1 {
			return values, err
		}
		maps.Copy(all, values)
	}
	return all, nil
}

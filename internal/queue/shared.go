package queue

import "context"

// Shared answers the keys of all calls that wait with one query, so that any number of them has one
// connection.
type Shared[K comparable, V any] struct {
	queue *Queue[struct{}, []K, map[K]V]
}

// Query finds the values of keys. Keys without one are not in the answer.
type Query[K comparable, V any] func(ctx context.Context, keys ...K) (map[K]V, error)

// Share shares a query. Most bounds its keys, unless one call alone has more. Write and Weight are set here.
func Share[K comparable, V any](query Query[K, V], o Options[struct{}, []K, map[K]V]) *Shared[K, V] {
	o.Weight = func(keys []K) int { return len(keys) }
	o.Write = func(ctx context.Context, _ struct{}, calls []*Call[[]K, map[K]V]) {
		var keys []K
		for _, c := range calls {
			keys = append(keys, c.Ask...)
		}
		values, err := query(ctx, keys...)
		for _, c := range calls {
			c.Answer(values, err)
		}
	}
	return &Shared[K, V]{New(o)}
}

// Get gives the values of keys. The map may hold those of other callers as well, and must not be written to.
func (s *Shared[K, V]) Get(ctx context.Context, keys ...K) (map[K]V, error) {
	return s.queue.Do(ctx, struct{}{}, keys)
}

package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// lookAtRedis looks at the keys of an item, on one server or on several.
func lookAtRedis(ctx context.Context, item int64, clients ...redis.UniversalClient) (View, error) {
	tables, failed := make([]Table, len(clients)), make([]error, len(clients))
	var asked sync.WaitGroup
	for i, c := range clients {
		asked.Go(func() { tables[i], failed[i] = keys(ctx, c, item) })
	}
	asked.Wait()
	if len(clients) == 1 {
		tables[0].Title = "keys"
		return View{Tables: tables}, failed[0]
	}
	all := votes(tables, failed)
	for i := range tables {
		tables[i].Title = fmt.Sprintf("redlock-%d", i+1)
		if failed[i] != nil {
			tables[i].Head, tables[i].Rows = []string{"error"}, [][]string{{failed[i].Error()}}
		}
	}
	return View{Tables: append([]Table{all}, tables...)}, nil
}

// votes shows the masters side by side: which of them has which value of a key.
func votes(masters []Table, failed []error) Table {
	all := Table{Title: "votes", Head: []string{"key", "value"}, Rows: [][]string{}}
	at := make(map[[2]string]int) // the row of a key and its value
	for i, master := range masters {
		all.Head = append(all.Head, strconv.Itoa(i+1))
		for _, row := range master.Rows {
			which := [2]string{row[0], row[2]}
			if _, known := at[which]; !known {
				at[which] = len(all.Rows)
				all.Rows = append(all.Rows, append([]string{row[0], row[2]}, make([]string, len(masters))...))
			}
			all.Rows[at[which]][2+i] = "yes"
		}
	}
	all.Head = append(all.Head, "votes")
	for n, row := range all.Rows {
		count := 0
		for i := range masters {
			switch {
			case row[2+i] != "":
				count++
			case failed[i] != nil:
				row[2+i] = "?"
			default:
				row[2+i] = "no"
			}
		}
		all.Rows[n] = append(row, fmt.Sprintf("%d of %d", count, len(masters)))
	}
	return all
}

// keys are those of an item, with type, value and time to live.
func keys(ctx context.Context, c redis.UniversalClient, item int64) (Table, error) {
	// Names stand escaped in keys; braces keep those of one item in one slot.
	found, err := scan(ctx, c, fmt.Sprintf("*{*[^0-9]%d}*", item))
	if err != nil {
		return Table{}, err
	}
	table := Table{Head: []string{"key", "type", "value", "ttl_ms"}, Rows: [][]string{}}
	for _, key := range found {
		kind, err := c.Type(ctx, key).Result()
		if err != nil {
			return Table{}, err
		}
		value, err := valueOf(ctx, c, key, kind)
		if err != nil {
			return Table{}, err
		}
		ttl, err := c.PTTL(ctx, key).Result()
		if err != nil {
			return Table{}, err
		}
		if kind == "none" {
			continue // it has gone meanwhile
		}
		left := ""
		if ttl > 0 {
			left = strconv.FormatInt(ttl.Milliseconds(), 10)
		}
		table.Rows = append(table.Rows, []string{key, kind, printable(value), left})
	}
	return table, nil
}

// scan lists keys; a Redis of a lab has few.
func scan(ctx context.Context, c redis.UniversalClient, pattern string) (found []string, err error) {
	keys := c.Scan(ctx, 0, pattern, 500).Iterator()
	for len(found) < maxRows && keys.Next(ctx) {
		found = append(found, keys.Val())
	}
	slices.Sort(found)
	return found, keys.Err()
}

func valueOf(ctx context.Context, c redis.UniversalClient, key, kind string) (string, error) {
	const some = 8
	switch kind {
	case "string":
		value, err := c.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return value, err
	case "hash":
		fields, err := c.HGetAll(ctx, key).Result()
		list := make([]string, 0, len(fields))
		for field, value := range fields {
			list = append(list, field+" = "+value)
		}
		slices.Sort(list)
		return strings.Join(list[:min(len(list), some)], ", "), err
	case "list":
		n, err := c.LLen(ctx, key).Result()
		return fmt.Sprintf("%d entries", n), err
	case "zset":
		members, err := c.ZRange(ctx, key, 0, some-1).Result()
		return strings.Join(members, ", "), err
	case "set":
		n, err := c.SCard(ctx, key).Result()
		return fmt.Sprintf("%d members", n), err
	case "stream":
		n, err := c.XLen(ctx, key).Result()
		return fmt.Sprintf("%d entries", n), err
	default:
		return "", nil
	}
}

package hostile

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/repo"
)

// State is what the servers keep.
type State struct {
	// Rows is how many rows each table has.
	Rows map[string]int64 `json:"rows"`
	// Keys is how many keys Redis has, and Memory what it uses for them, in bytes.
	Keys   int64 `json:"redis_keys"`
	Memory int64 `json:"redis_memory"`
	// Invented counts rows and keys of items that do not exist, by where they are.
	Invented map[string]int `json:"invented,omitempty"`
}

func readState(x *flow.Flow, b *servers.Backends) State {
	s := State{Rows: make(map[string]int64), Invented: make(map[string]int)}
	s.countRows(x, b.Database)
	if b.Redis == nil {
		return s
	}
	r := b.Redis.Open()
	defer r.Close() //nolint:errcheck // it was only read
	s.Keys = flow.Get(r.DBSize(x).Result())(x)
	for keys := r.Scan(x, 0, "*"+inventedPrefix+"*", 1000).Iterator(); keys.Next(x); {
		if invented().MatchString(keys.Val()) {
			s.Invented["keys of Redis"]++
		}
	}
	if stats := r.InfoMap(x, "memory"); stats.Err() == nil {
		_, _ = fmt.Sscan(stats.Item("Memory", "used_memory"), &s.Memory) // a figure for people
	}
	return s
}

// inventedPrefix begins the number of every item that the attacker invents.
const inventedPrefix = "77770"

func invented() *regexp.Regexp { return regexp.MustCompile(`(^|\D)` + inventedPrefix + `\d{8}(\D|$)`) }

func (s State) countRows(x *flow.Flow, d *servers.Database) {
	db, tables := openTables(x, d)
	defer db.Close() //nolint:errcheck // it was only read
	_, names, err := servers.Rows(x, db, tables)
	x.Must(err)
	for _, row := range names {
		name, n := row[0], int64(0)
		x.Must(db.QueryRowContext(x, "SELECT COUNT(*) FROM "+name).Scan(&n))
		if s.Rows[name] = n; n < inventedRows {
			s.findInvented(x, db, name)
		}
	}
}

// openTables connects to a database, and says how its tables are listed.
func openTables(x *flow.Flow, d *servers.Database) (db *sql.DB, tables string) {
	db, dialect, err := d.Pool(1, readTimeout)
	x.Must(err)
	if dialect == repo.SQLite {
		return db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
	}
	return db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
}

const readTimeout = 10 * time.Second

// inventedRows bounds the tables that are read in full: one that is larger breaks the
// bound of its rows, or is the ledger.
const inventedRows = 100_000

func (s State) findInvented(x *flow.Flow, db *sql.DB, table string) {
	_, rows, err := servers.Rows(x, db, "SELECT * FROM "+table) //nolint:unqueryvet // any column of a table that the database has named may have an item
	x.Must(err)
	pattern := invented()
	for _, row := range rows {
		if slices.ContainsFunc(row, pattern.MatchString) {
			s.Invented["rows of "+table]++
		}
	}
}

// Sample is the memory of the replicas at one moment.
type Sample struct {
	Seconds float64 `json:"seconds"`
	// Resident is VmRSS in bytes, a figure for each replica.
	Resident []int64 `json:"resident"`
}

// Pages counts how often the page of the item and its audit were asked for beside the
// load, and how often there was no answer.
type Pages struct {
	Asked    int      `json:"asked"`
	Failed   int      `json:"failed"`
	Slowest  float64  `json:"slowest_ms"`
	Failures []string `json:"failures,omitempty"` // the first of them
}

// watcher looks at the replicas once a second.
type watcher struct {
	cluster *shop.Cluster
	item    int64

	samples []Sample
	pages   Pages
}

func (w *watcher) run(ctx context.Context) {
	start, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	page := clientFrom(w.cluster.URL, loopback(3, 0))
	defer page.HTTP.CloseIdleConnections()
	admin := w.cluster.Client().Owner()
	for {
		w.sample(time.Since(start))
		w.look(ctx, "stock page", func(ctx context.Context) error {
			_, err := page.Goods(ctx, w.item)
			return err
		})
		w.look(ctx, "audit", func(ctx context.Context) error {
			_, err := admin.AuditNow(ctx, w.item)
			return err
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pageTimeout is longer than the balancer waits for a replica.
const pageTimeout = 20 * time.Second

func (w *watcher) look(ctx context.Context, what string, ask func(context.Context) error) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	err := ask(limited)
	if ctx.Err() != nil {
		return // the phase is over
	}
	w.pages.Asked++
	w.pages.Slowest = max(w.pages.Slowest, float64(time.Since(start).Microseconds())/1000)
	if err != nil {
		w.pages.Failed++
		if len(w.pages.Failures) < 5 {
			w.pages.Failures = append(w.pages.Failures, fmt.Sprintf("%s: %v", what, err))
		}
	}
}

func (w *watcher) sample(since time.Duration) {
	s := Sample{Seconds: since.Seconds()}
	for _, r := range w.cluster.Replicas {
		resident, _ := servers.Resident(r.Pid(), servers.CurrentMemory) // 0 of a replica that has ended
		s.Resident = append(s.Resident, resident)
	}
	w.samples = append(w.samples, s)
}

func most(samples []Sample) (largest int64) {
	for _, s := range samples {
		for _, bytes := range s.Resident {
			largest = max(largest, bytes)
		}
	}
	return largest
}

// Log is what the replicas have written down.
type Log struct {
	Bytes  int64 `json:"bytes"`
	Panics int   `json:"panics"`
	// Lines counts those of a level above INFO, by level and message.
	Lines map[string]int `json:"lines"`
}

func readLogs(paths []string, from []int64) (l Log, err error) {
	l.Lines = make(map[string]int)
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return l, fmt.Errorf("read the log of a replica: %w", err)
		}
		content = content[min(from[i], int64(len(content))):]
		l.Bytes += int64(len(content))
		l.Panics += bytes.Count(content, []byte("panic")) + bytes.Count(content, []byte("DATA RACE"))
		for line := range bytes.Lines(content) {
			if kind := kindOf(line); kind != "" {
				l.Lines[kind]++
			}
		}
	}
	return l, nil
}

func sizes(paths []string) []int64 {
	list := make([]int64, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil { // else reading it tells what is wrong
			list[i] = info.Size()
		}
	}
	return list
}

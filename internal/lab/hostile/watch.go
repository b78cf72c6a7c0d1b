package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
)

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
	cluster *cluster.Cluster
	item    int64

	mu      sync.Mutex
	samples []Sample
	pages   Pages
}

// watcherAddress is that of a buyer who only looks.
func watcherAddress() net.IP { return loopback(3, 0) }

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	start, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	page := clientFrom(w.cluster.URL, watcherAddress())
	defer page.HTTP.CloseIdleConnections()
	admin := w.cluster.Client()
	for {
		w.sample(time.Since(start))
		w.look(ctx, "stock page", func(ctx context.Context) error {
			_, err := page.Goods(ctx, w.item)
			return err
		})
		w.look(ctx, "audit", func(ctx context.Context) error { return auditOnce(ctx, admin, w.item) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// auditOnce asks the admin API for an audit, whatever is pending.
func auditOnce(ctx context.Context, admin client.Client, item int64) error {
	admin.URL = admin.AdminURL
	_, err := admin.AuditNow(ctx, item)
	return err
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
	w.mu.Lock()
	defer w.mu.Unlock()
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
}

// most is the largest memory of any replica over a part of the samples.
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

// readLogs reads what the logs have beyond the first bytes of each.
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

func sizes(paths []string) (list []int64) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			list = append(list, 0) // reading it tells what is wrong
			continue
		}
		list = append(list, info.Size())
	}
	return list
}

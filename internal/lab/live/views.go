package live

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/servers"
)

// View is what a server says of itself.
type View struct {
	At Millis `json:"at"`
	// Error is why it says nothing.
	Error  string  `json:"error,omitempty"`
	Tables []Table `json:"tables"`
	// Notes are the names of what this server cannot tell; the page has the words.
	Notes []string `json:"notes"`
}

// Table is a part of a view.
type Table struct {
	// Title is a name that the page has words for.
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

const (
	// viewFor is how long a view is shared: each server is asked a few times a second at
	// most, however many pages are open.
	viewFor    = 200 * time.Millisecond
	viewWithin = 1500 * time.Millisecond
	// maxRows bounds a table.
	maxRows = 20
)

// lens is the way to look at one server, on a connection of its own.
type lens struct {
	look func(ctx context.Context, item int64) (View, error)
	end  func() error // nil: it has no connection

	mu   sync.Mutex
	item int64
	last View
	at   time.Time
}

// lensOn looks through a connection that the first look opens.
func lensOn[C any](open func() (C, error), end func(C) error, look func(context.Context, C, int64) (View, error)) *lens {
	l := new(lens)
	var connection C
	l.look = func(ctx context.Context, item int64) (v View, err error) {
		if l.end == nil {
			if connection, err = open(); err != nil {
				return v, err
			}
			l.end = func() error { return end(connection) }
		}
		return look(ctx, connection, item)
	}
	return l
}

func (l *lens) close() error {
	if l.end == nil {
		return nil
	}
	return l.end()
}

// lensesOf are those of servers of our own.
func lensesOf(b *servers.Backends) map[string]*lens {
	list := map[string]*lens{"database": databaseLens(b.Database)}
	if b.Redis != nil {
		list["redis"] = redisLens(b.Redis)
	}
	if b.Redlock != nil {
		list["redlock"] = redisLens(b.Redlock.Nodes...)
	}
	if b.ZooKeeper != nil {
		list["zookeeper"] = zooKeeperLens(b.ZooKeeper)
	}
	if b.Etcd != nil {
		list["etcd"] = lensOn(b.Etcd.Open, (*clientv3.Client).Close, lookAtEtcd)
	}
	return list
}

// See asks a server what it has of the item on sale.
func (s *Session) See(ctx context.Context, backend string) (View, error) {
	l := s.lenses[backend]
	if l == nil {
		return View{}, fmt.Errorf("a server %q: %w", backend, fs.ErrNotExist)
	}
	s.mu.Lock()
	item := s.item
	s.mu.Unlock()
	return l.see(ctx, item), nil
}

// see asks one question at a time.
func (l *lens) see(ctx context.Context, item int64) View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.item == item && time.Since(l.at) < viewFor {
		return l.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), viewWithin) // the answer is shared
	defer cancel()
	view, err := l.look(ctx, item)
	if err != nil {
		view = View{Error: err.Error()}
	}
	view.At = millis(time.Now())
	if view.Tables == nil {
		view.Tables = []Table{}
	}
	if view.Notes == nil {
		view.Notes = []string{}
	}
	l.item, l.last, l.at = item, view, time.Now()
	return view
}

// printable is a text without what is none, and not too long for a table.
func printable(text string) string {
	const most = 80
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// lockName is what locks call an item.
func lockName(item int64) string { return "goods/" + strconv.FormatInt(item, 10) }

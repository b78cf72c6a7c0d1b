package live

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

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
	look  func(ctx context.Context, item int64) (View, error)
	close func() error

	mu   sync.Mutex
	item int64
	last View
	at   time.Time
}

// lensesOf are those of servers of our own.
func lensesOf(b *servers.Backends) map[string]*lens {
	database := &databaseLens{server: b.Database}
	list := map[string]*lens{"database": {look: database.look, close: database.close}}
	if b.Redis != nil {
		r := &redisLens{nodes: []*servers.Redis{b.Redis}}
		list["redis"] = &lens{look: r.look, close: r.close}
	}
	if b.Redlock != nil {
		r := &redisLens{nodes: b.Redlock.Nodes}
		list["redlock"] = &lens{look: r.look, close: r.close}
	}
	if b.ZooKeeper != nil {
		z := &zooKeeperLens{server: b.ZooKeeper}
		list["zookeeper"] = &lens{look: z.look, close: z.close}
	}
	if b.Etcd != nil {
		e := &etcdLens{server: b.Etcd}
		list["etcd"] = &lens{look: e.look, close: e.close}
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

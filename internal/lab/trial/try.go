package trial

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// try is one question to one library. A step that fails and is none of the library's ends it.
type try struct {
	*experiments.Try
	*site

	library Library
	conn    Conn   // without links between
	name    string // what is locked
	folder  string

	working sync.WaitGroup // what goes on beside the steps
}

// run takes the steps, and waits for what goes on beside them.
func (t *try) run(ctx context.Context, to *history.Writer, steps func(*try)) error {
	return experiments.Alone(ctx, to, func(x *experiments.Try) {
		t.Try = x
		defer t.working.Wait()
		if t.name == "" {
			t.name = t.newName()
		}
		steps(t)
	})
}

// newName is a name to lock that has no holder.
func (t *try) newName() string {
	name := "trial" + rand.Text()[:12]
	_, err := t.admin.ExecContext(t, "INSERT INTO trial_lock VALUES (?)", name)
	t.Must(err)
	return name
}

func (t *try) sleep(d time.Duration) { t.Must(pause.For(t, d)) }

// leases is a time in leases.
func leases(n float64) time.Duration { return time.Duration(n * float64(lease)) }

// client has connections of its own to the servers, over links that faults hit.
type client struct {
	*try

	name   string // what it locks
	links  []*servers.Proxy
	locker lock.Locker
}

func (t *try) client(name string) *client {
	c, to := &client{try: t, name: t.name}, t.conn
	to.Conn, c.links = t.Through(to.Conn)
	return c.connect(name, to)
}

// direct is a client without links, which costs no more than the library does.
func (t *try) direct(name string) *client {
	return (&client{try: t, name: t.name}).connect(name, t.conn)
}

func (c *client) connect(name string, to Conn) *client {
	made, closeAll, err := c.library.Open(to)
	c.Must(err)
	c.Later(closeAll)
	record, err := failpoint.Open(failpoint.Options{Replica: name, Writer: c.History})
	c.Must(err)
	c.locker = record.Record(c.library.Name, made)
	return c
}

// ask asks for the name for a time. That it is not granted is in the history, and no error.
func (c *client) ask(within time.Duration) lock.Lease {
	ctx, cancel := context.WithTimeout(c, within)
	defer cancel()
	lease, _ := c.locker.Acquire(ctx, c.name) // how it ends is recorded
	return lease
}

// take asks for a name that must be granted.
func (c *client) take() lock.Lease {
	held := c.ask(leases(3))
	if held == nil {
		c.Must(errors.New("the first holder was not granted the name"))
	}
	return held
}

// turn asks for the name, has it for a moment, and gives it back.
func (c *client) turn(within time.Duration) {
	if held := c.ask(within); held != nil {
		c.sleep(leases(0.1))
		c.giveBack(held)
	}
}

// giveBack releases a hold, if there is one. How it ends is in the history.
func (c *client) giveBack(held lock.Lease) {
	if held != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c), leases(1))
		defer cancel()
		_ = held.Release(ctx)
	}
}

// acts is for how long a connection without replies stays, so that the server acts before it notices its end.
const acts = 200 * time.Millisecond

// losing does something whose reply is lost on every link, and writes down on how many it was.
func (c *client) losing(sent string, do func()) {
	lost, met := c.arm(servers.Rule{Sent: sent, Do: servers.HangReply}), 0
	ctx, cancel := context.WithCancel(c)
	for i, link := range c.links {
		c.working.Go(func() {
			if lost[i].Wait(ctx) == nil {
				c.sleep(acts)
				link.Break()
			}
		})
	}
	do()
	cancel()
	for _, one := range lost {
		if one.Disarm() {
			met++
		}
	}
	c.Figure("replies_lost", float64(met))
}

func (c *client) arm(r servers.Rule) (all []*servers.Trigger) {
	c.each(func(link *servers.Proxy) { all = append(all, link.Arm(r)) })
	return all
}

func (c *client) each(do func(*servers.Proxy)) {
	for _, link := range c.links {
		do(link)
	}
}

// holder is what a process needs that holds a name alone, to be killed or paused.
type holder struct {
	Library, Name, History string
	Conn                   Conn
}

func (t *try) ownHistory() string { return filepath.Join(t.folder, "holder.jsonl") }

// ownProcess has a process take the name as first, and returns when it has it.
func (t *try) ownProcess() *servers.Process {
	args := holder{t.library.Name, t.name, t.ownHistory(), t.conn}
	text, err := json.Marshal(args) //nolint:musttag // this program reads it
	t.Must(err)
	self, err := os.Executable()
	t.Must(err)
	p, err := t.supervisor.Run(t, servers.Command{Path: self, Args: []string{"trial", "hold", string(text)}, Env: os.Environ(), Log: filepath.Join(t.folder, "holder.log")})
	t.Must(err)
	t.Later(func() error { return p.Kill(context.WithoutCancel(t)) })
	for end := time.Now().Add(leases(4)); time.Now().Before(end); t.sleep(20 * time.Millisecond) {
		if h, err := history.Read(args.History); err == nil && len(h.Leases) == 1 && !h.Leases[0].Granted.IsZero() {
			return p
		}
	}
	log, _ := os.ReadFile(filepath.Join(t.folder, "holder.log")) // it is there or not
	t.Must(fmt.Errorf("a process did not get the name: %s", log))
	return nil
}

// Hold takes a name, and works under it until the process ends. After a pause it writes down whether it would write:
// it does where nothing has told it of a loss.
func Hold(ctx context.Context, text string) error {
	var h holder
	if err := json.Unmarshal([]byte(text), &h); err != nil { //nolint:musttag // this program wrote it
		return fmt.Errorf("read what to hold: %w", err)
	}
	library, err := Find(h.Library)
	if err != nil {
		return err
	}
	to, err := history.Append(h.History)
	if err != nil {
		return err
	}
	t := &try{library: library, conn: h.Conn, name: h.Name}
	return t.run(ctx, to, func(t *try) {
		held := t.direct("first").take()
		for last := time.Now(); ; last = time.Now() {
			t.sleep(5 * time.Millisecond)
			if time.Since(last) > lease/2 && held.Context().Err() == nil {
				t.Mark("first", lateWrite)
			}
		}
	})
}

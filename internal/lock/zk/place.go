package zk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// place is a place in a queue.
type place struct {
	session *backend.ZKSession
	folder  string
	prefix  string // begins the name of no other node
	unsure  bool   // a node was asked for, and the answer lost

	numbered // empty where no node is known
	number   int

	// What follows is about the others of this replica.
	line   *line
	gone   chan struct{} // closed when we have left
	held   bool          // it was our turn
	passed bool          // it was, and the node is deleted; read it when gone is closed
	before *place        // the next before us, if it is one of them
}

// numbered is a node with a number.
type numbered struct {
	name        string
	czxid       int64
	folderCzxid int64 // another folder of the same name counts anew
}

func (p *place) enter(ctx context.Context) error {
	var err error
	for range tries {
		link, lost := p.session.Connected(ctx)
		if lost != nil {
			return lost
		}
		p.numbered, err = ask(ctx, link, p.unsure, p.find, p.create, p.dropLost)
		switch {
		case err == nil:
			p.number, err = numberOf(p.name)
			return err
		case errors.Is(err, zk.ErrNoNode):
			continue // the folder was removed under our hands
		case backend.ZKAnswered(err):
			return err
		}
		p.unsure = true
		if ctx.Err() != nil || errors.Is(err, backend.ErrUnanswered) {
			return err
		}
	}
	return err
}

// create makes the node.
func (p *place) create(conn *zk.Conn) (numbered, error) {
	path, folder, err := create(conn, p.session, p.folder, zk.CreateRequest{Path: p.folder + "/" + p.prefix, Flags: zk.FlagEphemeralSequential})
	if err != nil {
		return numbered{}, err
	}
	return numbered{strings.TrimPrefix(path, p.folder+"/"), folder.Mzxid, folder.Czxid}, nil
}

// find looks for the node by the beginning of its name. The server that we are
// connected to now may be behind the one that we asked: Sync lets it catch up.
func (p *place) find(conn *zk.Conn) (numbered, error) {
	if _, err := conn.Sync(p.folder); err != nil {
		return numbered{}, err
	}
	names, folder, err := conn.Children(p.folder)
	if err != nil {
		return numbered{}, err
	}
	for _, name := range names {
		if strings.HasPrefix(name, p.prefix) {
			_, stat, err := conn.Get(p.folder + "/" + name)
			if err != nil {
				return numbered{}, err
			}
			return numbered{name, stat.Czxid, folder.Czxid}, nil
		}
	}
	return numbered{}, zk.ErrNoNode
}

// dropLost deletes a node whose name is not known.
func (p *place) dropLost(conn *zk.Conn) error {
	found, err := p.find(conn)
	if err != nil {
		return err
	}
	return conn.Delete(p.folder+"/"+found.name, -1)
}

// drop deletes the node. If it was our turn, it is the next one's now.
func (p *place) drop(conn *zk.Conn) error {
	err := conn.Delete(p.path(), -1)
	if err == nil {
		p.line.leave(p, p.held)
	}
	return err
}

func (p *place) path() string { return p.folder + "/" + p.name }

// leave deletes the node: now, or later where the server does not answer soon.
func (p *place) leave(ctx context.Context) {
	defer p.line.leave(p, false)
	switch {
	case p.name != "":
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), backend.AnswerWithin)
		defer cancel()
		if err := backend.ZKDo(own, p.session.Current(), p.drop); !backend.ZKGone(err) {
			p.session.Discard(p.drop)
		}
	case p.unsure:
		p.session.Discard(p.dropLost)
	}
}

// wait waits on one connection until it is our turn.
func (p *place) wait(ctx context.Context, look lookFunc) (*lock.Held, error) {
	link, err := p.session.Connected(ctx)
	if err != nil {
		return nil, err
	}
	for {
		turn, changed, err := look(ctx, link, p)
		switch {
		case err != nil:
			return nil, err
		case link.Ctx.Err() != nil: // the next connection may have carried the answer
			return nil, zk.ErrConnectionClosed
		case turn:
			return p.hold(link), nil
		}
		if err := link.Sleep(ctx, changed); err != nil {
			return nil, err
		}
		tellWoken(ctx, changed)
	}
}

// tellWoken tells what ended a sleep: the watch, or its limit.
func tellWoken(ctx context.Context, changed <-chan struct{}) {
	by := lock.ByTimeout
	select {
	case <-changed:
		by = lock.ByWatch
	default:
	}
	lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Woken, By: by})
}

func (p *place) hold(link *backend.ZKLink) *lock.Held {
	p.held = true
	lease := newHolder(link, p.path(), p.czxid, p.drop)
	context.AfterFunc(lease.Context(), func() { p.line.leave(p, false) }) // where it was lost
	return lease
}

// ahead is the name next before ours, empty where we are the first.
func (p *place) ahead(names []string) (string, error) {
	next, highest, here := "", -1, false
	for _, name := range names {
		number, err := numberOf(name)
		switch {
		case name == p.name:
			here = true
		case err == nil && number < p.number && number > highest:
			next, highest = name, number
		}
	}
	if !here {
		return "", backend.ErrBeginAgain
	}
	return next, nil
}

// numberOf reads the number that the server gave a node; once its 32 bits have
// overflowed, it is negative.
func numberOf(name string) (int, error) {
	_, number, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("the node %q has no number: %w", name, err)
	}
	return n, nil
}

// Package keeper looks after child processes and a temporary folder so that
// neither outlives the process that wanted them: not after success or failure,
// not after ^C, and not when that process is killed.
//
// A killed process can clean up nothing. So the children belong to another
// process, the keeper: this program started a second time, in a session of its
// own, with a pipe to the first. When the pipe ends, for whatever reason, the
// keeper stops its children, removes the folder and exits.
package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// argument tells a program that it was started as a keeper.
const argument = "__keeper__"

// RunIfAsked must be called first thing by every main and TestMain whose
// program uses Start: where the program was started as a keeper, it serves as
// one and does not return.
func RunIfAsked() {
	if len(os.Args) == 2 && os.Args[1] == argument {
		os.Exit(serve(os.Stdin, os.Stdout))
	}
}

// Keeper is the near end: what the process that wants children holds.
type Keeper struct {
	cmd    *exec.Cmd
	folder string

	mu        sync.Mutex
	requests  io.WriteCloser
	lastID    int                // of requests and processes alike
	replies   map[int]chan event // by request
	processes map[int]*Process

	ended   chan struct{} // closed when the keeper process is gone
	closing sync.Once
}

// request is one line to the keeper. It is about one process: to start it, to
// signal it, or to stop it.
type request struct {
	ID      int            `json:"id"`
	Process int            `json:"process"`
	Command *Command       `json:"command,omitempty"`
	Signal  syscall.Signal `json:"signal,omitempty"`
	Stop    bool           `json:"stop,omitempty"`
}

// event is one line from the keeper: its folder, first of all; the answer to a
// request; or the end of a process.
type event struct {
	Folder string `json:"folder,omitempty"`

	Request int    `json:"request,omitempty"`
	Pid     int    `json:"pid,omitempty"`
	Error   string `json:"error,omitempty"`

	Ended int    `json:"ended,omitempty"`
	State string `json:"state,omitempty"`
}

// Command says what to start.
type Command struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
	// Env is the whole environment of the child.
	Env []string `json:"env"`
	// Log is the file that takes what the child prints; it is appended to.
	Log string `json:"log"`
	// Stop is the signal that asks the child to end, SIGTERM where it is 0.
	Stop syscall.Signal `json:"stop"`
	// Grace is how long the child may take to end before it is killed, with
	// everything that it started; 10 s where it is 0.
	Grace time.Duration `json:"grace"`
}

// Start starts the keeper. It must be closed.
func Start() (*Keeper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	cmd := exec.Command(self, argument)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C is not meant for it
	requests, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	k := &Keeper{
		cmd: cmd, requests: requests,
		replies: make(map[int]chan event), processes: make(map[int]*Process),
		ended: make(chan struct{}),
	}
	decoder := json.NewDecoder(bufio.NewReader(events))
	var hello event
	if err := decoder.Decode(&hello); err != nil || hello.Folder == "" {
		return nil, errors.Join(fmt.Errorf("start keeper: no folder: %s", hello.Error), err, requests.Close(), cmd.Wait())
	}
	k.folder = hello.Folder
	go k.listen(decoder)
	return k, nil
}

// Folder is a temporary folder that is removed with everything in it.
func (k *Keeper) Folder() string { return k.folder }

// Run starts a child.
func (k *Keeper) Run(ctx context.Context, c Command) (*Process, error) {
	name := filepath.Base(c.Path)
	p := &Process{keeper: k, name: name, done: make(chan struct{})}
	k.mu.Lock()
	k.lastID++
	p.id = k.lastID
	k.processes[p.id] = p
	k.mu.Unlock()
	started, err := k.ask(ctx, request{Process: p.id, Command: &c})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = started.Pid
	return p, nil
}

// Close stops every child, the last one first, and removes the folder.
// Closing twice is harmless.
func (k *Keeper) Close() error {
	var err error
	k.closing.Do(func() {
		k.mu.Lock()
		if err = k.requests.Close(); errors.Is(err, os.ErrClosed) {
			err = nil // the keeper has ended before us
		}
		k.mu.Unlock()
		<-k.ended
		// The keeper has removed it, unless it was killed itself.
		err = errors.Join(err, os.RemoveAll(k.folder))
	})
	return err
}

// ask sends a request and waits for its answer.
func (k *Keeper) ask(ctx context.Context, r request) (event, error) {
	reply := make(chan event, 1)
	k.mu.Lock()
	k.lastID++
	r.ID = k.lastID
	k.replies[r.ID] = reply
	err := json.NewEncoder(k.requests).Encode(r)
	k.mu.Unlock()
	if err != nil {
		return event{}, fmt.Errorf("ask keeper: %w", err)
	}
	select {
	case e := <-reply:
		if e.Error != "" {
			return event{}, errors.New(e.Error)
		}
		return e, nil
	case <-k.ended:
		return event{}, errors.New("the keeper is gone")
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

// listen hands out what the keeper tells, until it is gone.
func (k *Keeper) listen(events *json.Decoder) {
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			break
		}
		k.mu.Lock()
		if p := k.processes[e.Ended]; p != nil {
			p.end(e.State)
		}
		if reply := k.replies[e.Request]; reply != nil {
			delete(k.replies, e.Request)
			reply <- e
		}
		k.mu.Unlock()
	}
	_ = k.cmd.Wait() // how it ended changes nothing: what it kept is gone
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.processes {
		p.end("stopped with its keeper")
	}
	close(k.ended)
}

// Process is a child.
type Process struct {
	keeper *Keeper
	id     int
	name   string
	pid    int
	done   chan struct{}
	once   sync.Once
	state  string
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State tells how the child ended; ask only after Done.
func (p *Process) State() string { return p.state }

func (p *Process) end(state string) {
	p.once.Do(func() {
		p.state = state
		close(p.done)
	})
}

// Signal sends a signal to the child.
func (p *Process) Signal(ctx context.Context, signal syscall.Signal) error {
	if _, err := p.keeper.ask(ctx, request{Process: p.id, Signal: signal}); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Stop asks the child to end, makes it end after its grace, and waits for it.
func (p *Process) Stop(ctx context.Context) error {
	if _, err := p.keeper.ask(ctx, request{Process: p.id, Stop: true}); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.name, context.Cause(ctx))
	}
}

// LogTail is the end of a log, at most so many lines, for people.
func LogTail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

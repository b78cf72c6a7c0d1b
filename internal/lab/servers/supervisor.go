package servers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// supervisorArgument starts a program as a supervisor.
const supervisorArgument = "__supervisor__"

// SuperviseIfAsked must be called first by every main and TestMain whose program
// uses StartSupervisor: in a program that was started as a supervisor it serves and
// does not return.
func SuperviseIfAsked() {
	if len(os.Args) == 2 && os.Args[1] == supervisorArgument {
		os.Exit(supervise(os.Stdin, os.Stdout))
	}
}

// Supervisor looks after child processes and a temporary folder: neither outlives
// the process that started them, whether that succeeds, fails, gets ^C or is killed.
//
// A killed process cleans up nothing. So the children belong to a process of their
// own: this program, started a second time in its own session, with a pipe to the
// first. When the pipe ends, it stops its children, removes the folder and exits.
type Supervisor struct {
	cmd    *exec.Cmd
	folder string

	mu        sync.Mutex
	requests  io.WriteCloser
	lastID    int                // of requests and processes alike
	replies   map[int]chan event // by request
	processes map[int]*Process

	ended   chan struct{} // closed when the supervisor process has ended
	closing sync.Once
}

// request is one line to the supervisor about one process: start it, signal it, or
// stop it.
type request struct {
	ID      int            `json:"id"`
	Process int            `json:"process"`
	Command *Command       `json:"command,omitempty"`
	Signal  syscall.Signal `json:"signal,omitempty"`
	Stop    bool           `json:"stop,omitempty"`
}

// event is one line from the supervisor: first its folder; then the answer to a
// request, or the end of a process.
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
	Name string   `json:"-"` // empty: that of its program
	Path string   `json:"path"`
	Args []string `json:"args"`
	// Env is the whole environment of the child.
	Env []string `json:"env"`
	// Log is the file that output is appended to.
	Log string `json:"log"`
	// Stop is the signal that asks the child to end, SIGTERM where it is 0.
	Stop syscall.Signal `json:"stop"`
	// Grace is how long the child may take to end before it is killed, with
	// everything that it started; 10 s where it is 0.
	Grace time.Duration `json:"grace"`
}

// StartSupervisor starts a supervisor. It must be closed.
func StartSupervisor() (_ *Supervisor, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start supervisor: %w", err)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, supervisorArgument)
	cmd.SysProcAttr = detached() // ^C in a terminal must not reach it
	requests, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	k := &Supervisor{
		cmd: cmd, requests: requests,
		replies: make(map[int]chan event), processes: make(map[int]*Process),
		ended: make(chan struct{}),
	}
	decoder := json.NewDecoder(bufio.NewReader(events))
	var hello event
	if err := decoder.Decode(&hello); err != nil || hello.Folder == "" {
		return nil, errors.Join(fmt.Errorf("no folder: %s", hello.Error), err, requests.Close(), cmd.Wait())
	}
	k.folder = hello.Folder
	go k.listen(decoder)
	return k, nil
}

// Folder is a temporary folder, removed with everything in it by Close.
func (k *Supervisor) Folder() string { return k.folder }

// Run starts a child. None is left where ctx ends before the answer.
func (k *Supervisor) Run(ctx context.Context, c Command) (*Process, error) {
	name := cmp.Or(c.Name, filepath.Base(c.Path))
	p := &Process{supervisor: k, name: name, done: make(chan struct{})}
	k.mu.Lock()
	k.lastID++
	p.id = k.lastID
	k.processes[p.id] = p
	k.mu.Unlock()
	started, err := k.ask(ctx, request{Process: p.id, Command: &c})
	if err != nil {
		if ctx.Err() != nil { // it may have started, and no caller could end it
			_ = p.Kill(context.WithoutCancel(ctx))
		}
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	k.mu.Lock()
	p.pid = started.Pid
	k.mu.Unlock()
	return p, nil
}

// Close stops every child, the last one first, and removes the folder.
// Closing twice is harmless.
func (k *Supervisor) Close() error {
	var err error
	k.closing.Do(func() {
		k.mu.Lock()
		if err = k.requests.Close(); errors.Is(err, os.ErrClosed) {
			err = nil // the supervisor has ended before
		}
		k.mu.Unlock()
		<-k.ended
		// The supervisor has removed it, unless it was killed itself.
		err = errors.Join(err, os.RemoveAll(k.folder))
	})
	return err
}

func (k *Supervisor) ask(ctx context.Context, r request) (event, error) {
	reply := make(chan event, 1)
	k.mu.Lock()
	k.lastID++
	r.ID = k.lastID
	k.replies[r.ID] = reply
	err := json.NewEncoder(k.requests).Encode(r)
	k.mu.Unlock()
	if err != nil {
		return event{}, fmt.Errorf("ask the supervisor: %w", err)
	}
	select {
	case e := <-reply:
		if e.Error != "" {
			return event{}, errors.New(e.Error)
		}
		return e, nil
	case <-k.ended:
		return event{}, errors.New("the supervisor has ended")
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

func (k *Supervisor) listen(events *json.Decoder) {
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
	_ = k.cmd.Wait() // its children have ended with it, whatever its status
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.processes {
		p.end("stopped with its supervisor")
	}
	close(k.ended)
}

// Process is a child.
type Process struct {
	supervisor *Supervisor
	id         int
	name       string
	pid        int
	done       chan struct{}
	once       sync.Once
	state      string
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.pid }

// Ended reports whether the child has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State says how the child ended. It is set when Done is closed.
func (p *Process) State() string { return p.state }

func (p *Process) end(state string) {
	p.once.Do(func() {
		p.state = state
		close(p.done)
	})
}

// Signal sends a signal to the child.
func (p *Process) Signal(ctx context.Context, signal syscall.Signal) error {
	if _, err := p.supervisor.ask(ctx, request{Process: p.id, Signal: signal}); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Stop asks the child to end, kills it after its grace, and waits for its end.
func (p *Process) Stop(ctx context.Context) error { return p.stop(ctx, 0) }

// Kill ends the child without a warning, and waits for its end. It succeeds where
// the child has ended already.
func (p *Process) Kill(ctx context.Context) error { return p.stop(ctx, syscall.SIGKILL) }

func (p *Process) stop(ctx context.Context, signal syscall.Signal) error {
	if _, err := p.supervisor.ask(ctx, request{Process: p.id, Stop: true, Signal: signal}); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.name, context.Cause(ctx))
	}
}

// CanPause says what is missing where this system cannot pause a process.
func CanPause() error {
	_, _, err := pausing()
	return err
}

// Pause stops a process with SIGSTOP, and returns when all its threads have stopped:
// its connections stay, and get no answer.
func (p *Process) Pause(ctx context.Context) error {
	stop, _, err := pausing()
	if err == nil {
		err = p.Signal(ctx, stop)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	// A thread that another processor runs goes on for a moment.
	for range 100 {
		if stopped(p.pid) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("pause %s: process %d runs on after SIGSTOP", p.name, p.pid)
}

// Resume continues a paused process.
func (p *Process) Resume(ctx context.Context) error {
	_, resume, err := pausing()
	if err != nil {
		return fmt.Errorf("resume %s: %w", p.name, err)
	}
	return p.Signal(ctx, resume)
}

// stopped reports whether every thread of a process has stopped, as far as this
// system shows it.
func stopped(pid int) bool {
	threads, _ := procfs.AllThreads(pid) // another system has no such list
	return !slices.ContainsFunc(threads, func(one procfs.Proc) bool {
		stat, err := one.Stat()
		return err == nil && stat.State != "T" // else it has ended
	})
}

func logTail(path string) string {
	const lines = 15
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

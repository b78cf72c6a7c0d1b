package servers

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const defaultGrace = 10 * time.Second

// far is the far end: the supervisor itself.
type far struct {
	mu       sync.Mutex
	events   *json.Encoder
	children map[int]*supervised
	order    []int // in which they were started
}

type supervised struct {
	command Command
	cmd     *exec.Cmd
	ended   chan struct{}
}

// serve keeps children until requests end, and returns the exit status.
func serve(requests io.Reader, events io.Writer) int {
	// Children are to die with this process, and the kernel ties that to the
	// thread that started them.
	runtime.LockOSThread()
	// Signals to the near end's terminal are its own business, and telling a
	// near end that is gone must not be our end.
	// (Caught and not ignored, for what is ignored is ignored by children too.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
	f := &far{events: json.NewEncoder(events), children: make(map[int]*supervised)}
	folder, err := os.MkdirTemp("", "stockd-lab-")
	if err != nil {
		f.tell(event{Error: err.Error()})
		return 1
	}
	f.tell(event{Folder: folder})
	decoder := json.NewDecoder(bufio.NewReader(requests))
	for {
		var r request
		if err := decoder.Decode(&r); err != nil {
			break
		}
		f.handle(r)
	}
	for _, id := range slices.Backward(f.order) {
		f.stop(f.children[id])
	}
	if err := os.RemoveAll(folder); err != nil {
		return 1
	}
	return 0
}

func (f *far) handle(r request) {
	answer := event{Request: r.ID}
	c := f.children[r.Process]
	switch {
	case r.Command != nil:
		answer.Pid, answer.Error = f.start(r.Process, *r.Command)
	case c == nil:
		answer.Error = "no such supervised"
	case r.Stop:
		go f.stop(c)
	default:
		if err := c.cmd.Process.Signal(r.Signal); err != nil {
			answer.Error = err.Error()
		}
	}
	f.tell(answer)
}

// start starts a supervised, or tells why it did not.
func (f *far) start(id int, command Command) (pid int, failure string) {
	log, err := os.OpenFile(command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err.Error()
	}
	defer log.Close() //nolint:errcheck // the supervised has its own copy
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Env = command.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return 0, err.Error()
	}
	c := &supervised{command: command, cmd: cmd, ended: make(chan struct{})}
	f.children[id] = c
	f.order = append(f.order, id)
	go f.wait(id, c)
	return cmd.Process.Pid, ""
}

// wait waits for a supervised, and takes what it may have left behind with it.
func (f *far) wait(id int, c *supervised) {
	state := "exit status 0"
	if err := reap(c.cmd); err != nil {
		state = err.Error()
	}
	close(c.ended)
	f.tell(event{Ended: id, State: state})
}

// stop asks a supervised to end, and makes it end after its grace.
func (f *far) stop(c *supervised) {
	ask, grace := c.command.Stop, c.command.Grace
	if ask == 0 {
		ask = syscall.SIGTERM
	}
	if grace == 0 {
		grace = defaultGrace
	}
	_ = c.cmd.Process.Signal(ask)
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // a paused supervised hears nothing else
	select {
	case <-c.ended:
		return
	case <-time.After(grace):
	}
	killGroup(c.cmd)
	<-c.ended
}

// killGroup kills a supervised that has not been waited for, with everything that
// it started.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func (f *far) tell(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.events.Encode(e) //nolint:errchkjson // a near end that is gone is told nothing
}

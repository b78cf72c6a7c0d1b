package servers

import (
	"bufio"
	"cmp"
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

// supervisorProcess is the other end of the pipe: the supervisor itself.
type supervisorProcess struct {
	mu       sync.Mutex
	events   *json.Encoder
	children map[int]*child
	order    []int // in which they were started
}

type child struct {
	command Command
	cmd     *exec.Cmd
	ended   chan struct{}
}

// supervise serves requests until they end, and returns the exit status.
func supervise(requests io.Reader, events io.Writer) int {
	// Children are to die with this process, and the kernel ties that to the
	// thread that started them.
	runtime.LockOSThread()
	// Signals of the client's terminal are the client's, and a write to a client that
	// has ended must not end this process. They are caught and not ignored, because
	// children inherit what is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
	s := &supervisorProcess{events: json.NewEncoder(events), children: make(map[int]*child)}
	folder, err := os.MkdirTemp("", "stockd-lab-")
	if err != nil {
		s.send(event{Error: err.Error()})
		return 1
	}
	s.send(event{Folder: folder})
	decoder := json.NewDecoder(bufio.NewReader(requests))
	for {
		var r request
		if err := decoder.Decode(&r); err != nil {
			break
		}
		s.handle(r)
	}
	for _, id := range slices.Backward(s.order) {
		s.children[id].stop(0)
	}
	if err := os.RemoveAll(folder); err != nil {
		return 1
	}
	return 0
}

func (s *supervisorProcess) handle(r request) {
	answer := event{Request: r.ID}
	c := s.children[r.Process]
	switch {
	case r.Command != nil:
		answer.Pid, answer.Error = s.start(r.Process, *r.Command)
	case c == nil:
		answer.Error = "no such child"
	case r.Stop:
		go c.stop(r.Signal)
	default:
		if err := send(c.cmd.Process, r.Signal); err != nil {
			answer.Error = err.Error()
		}
	}
	s.send(answer)
}

func (s *supervisorProcess) start(id int, command Command) (pid int, failure string) {
	log, err := os.OpenFile(command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err.Error()
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Env = command.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return 0, err.Error()
	}
	c := &child{command: command, cmd: cmd, ended: make(chan struct{})}
	s.children[id] = c
	s.order = append(s.order, id)
	go s.wait(id, c)
	return cmd.Process.Pid, ""
}

func (s *supervisorProcess) wait(id int, c *child) {
	state := "exit status 0"
	if err := reap(c.cmd); err != nil {
		state = err.Error()
	}
	close(c.ended)
	s.send(event{Ended: id, State: state})
}

// stop asks a child to end by a signal, that of its command where it is 0, and kills
// it after its grace.
func (c *child) stop(signal syscall.Signal) {
	_ = send(c.cmd.Process, cmp.Or(signal, c.command.Stop, syscall.SIGTERM))
	if _, resume, err := pausing(); err == nil {
		_ = send(c.cmd.Process, resume) // a paused child receives no other
	}
	select {
	case <-c.ended:
		return
	case <-time.After(cmp.Or(c.command.Grace, defaultGrace)):
	}
	killGroup(c.cmd)
	<-c.ended
}

func (s *supervisorProcess) send(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.events.Encode(e) //nolint:errchkjson // the client may have ended
}

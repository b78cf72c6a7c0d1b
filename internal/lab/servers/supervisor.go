package servers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// supervisorArgument starts a program as a supervisor; a folder follows.
const supervisorArgument = "__supervisor__"

// SuperviseIfAsked must be called first by every main and TestMain whose program
// uses StartSupervisor: in a program that was started as a supervisor it serves and
// does not return.
func SuperviseIfAsked() {
	if len(os.Args) == 3 && os.Args[1] == supervisorArgument {
		os.Exit(supervise(os.Args[2], os.Stdin))
	}
}

// supervise takes the ids of children, and with a minus of those that have ended. When there are no more it
// kills those that are left, removes the folder, and returns the exit status.
func supervise(folder string, children io.Reader) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM) // it ends with its client, and after it
	var left []int
	for lines := bufio.NewScanner(children); lines.Scan(); {
		switch pid, err := strconv.Atoi(lines.Text()); {
		case err != nil:
		case pid > 0:
			left = append(left, pid)
		default:
			left = slices.DeleteFunc(left, func(one int) bool { return one == -pid })
		}
	}
	for _, pid := range slices.Backward(left) {
		killGroup(pid)
	}
	for range 100 {
		if os.RemoveAll(folder) == nil { //nolint:gosec // its client has made it
			return 0
		}
		time.Sleep(100 * time.Millisecond) // one that is being killed may have written there
	}
	return 1
}

// Supervisor looks after child processes and a temporary folder: neither outlives
// the process that started them, whether that succeeds, fails, gets ^C or is killed.
//
// A killed process cleans up nothing. So there is another one: this program, started a second
// time in its own session, which gets the ids of the children through a pipe. When the pipe ends,
// it kills those that are left, removes the folder and exits.
type Supervisor struct {
	cmd    *exec.Cmd
	folder string

	mu        sync.Mutex
	children  io.WriteCloser // their ids; nil when it has been closed
	processes []*Process     // as they were started

	ended chan struct{} // closed when the supervisor process has ended
}

// Command says what to start.
type Command struct {
	Name string // empty: that of its program
	Path string
	Args []string
	// Env is the whole environment of the child.
	Env []string
	// Log is the file that output is appended to.
	Log string
	// Stop is the signal that asks the child to end, SIGTERM where it is 0.
	Stop syscall.Signal
	// Grace is how long the child may take to end before it is killed, with
	// everything that it started; 10 s where it is 0.
	Grace time.Duration
}

const defaultGrace = 10 * time.Second

// StartSupervisor starts a supervisor. It must be closed.
func StartSupervisor() (*Supervisor, error) {
	k := &Supervisor{ended: make(chan struct{})}
	self, err := os.Executable()
	if err == nil {
		k.folder, err = os.MkdirTemp("", "stockd-lab-")
	}
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	k.cmd = exec.Command(self, supervisorArgument, k.folder)
	k.cmd.SysProcAttr = detached() // ^C in a terminal must not reach it
	if k.children, err = k.cmd.StdinPipe(); err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", errors.Join(err, os.Remove(k.folder)))
	}
	go k.watch()
	return k, nil
}

// watch ends the children where the supervisor process ends before them.
func (k *Supervisor) watch() {
	_ = k.cmd.Wait() // whatever its status
	for _, p := range k.all() {
		_ = p.Kill(context.Background())
	}
	close(k.ended)
}

// Folder is a temporary folder, removed with everything in it by Close.
func (k *Supervisor) Folder() string { return k.folder }

// Run starts a child. None is left where it fails.
func (k *Supervisor) Run(ctx context.Context, c Command) (*Process, error) {
	c.Name = cmp.Or(c.Name, filepath.Base(c.Path))
	p := &Process{command: c, done: make(chan struct{})}
	err := context.Cause(ctx)
	if err == nil {
		err = p.start(k.note)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	k.mu.Lock()
	k.processes = append(k.processes, p)
	k.mu.Unlock()
	return p, nil
}

// note tells the supervisor of a child.
func (k *Supervisor) note(pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.children == nil {
		return errors.New("the supervisor has ended")
	}
	_, err := fmt.Fprintln(k.children, pid)
	return err
}

func (k *Supervisor) all() []*Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.processes)
}

// Close stops every child, the last one first, and removes the folder.
// Closing twice is harmless.
func (k *Supervisor) Close() error {
	var errs []error
	for _, p := range slices.Backward(k.all()) {
		errs = append(errs, p.Stop(context.Background()))
	}
	k.mu.Lock()
	if k.children != nil {
		_ = k.children.Close() // the supervisor may have ended before
		k.children = nil
	}
	k.mu.Unlock()
	<-k.ended
	// The supervisor has removed it, unless it was killed itself.
	return errors.Join(append(errs, os.RemoveAll(k.folder))...)
}

// Process is a child. A nil one has never been started, and has nothing to end.
type Process struct {
	command Command
	cmd     *exec.Cmd
	done    chan struct{}
	state   string
}

// start starts the child, and notes its id, and that it has ended. It is to die with this process, and the kernel ties
// that to the thread that started it: one of its own, which lives as long as the child.
func (p *Process) start(note func(pid int) error) error {
	started := make(chan error)
	go func() {
		pprof.SetGoroutineLabels(context.Background()) // it is no goroutine of the test that starts a server
		runtime.LockOSThread()
		if err := p.spawn(); err != nil {
			started <- err
			return
		}
		err := note(p.Pid())
		if err != nil {
			killGroup(p.Pid())
		}
		started <- err
		p.state = "exit status 0"
		if err := reap(p.cmd); err != nil {
			p.state = err.Error()
		}
		close(p.done)
		_ = note(-p.Pid()) // the supervisor may have ended
	}()
	return <-started
}

func (p *Process) spawn() error {
	log, err := os.OpenFile(p.command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	p.cmd = exec.Command(p.command.Path, p.command.Args...)
	p.cmd.Env = p.command.Env
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = ownGroup()
	return p.cmd.Start()
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

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

// Signal sends a signal to the child.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := send(p.cmd.Process, signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.command.Name, err)
	}
	return nil
}

// Stop asks the child to end, kills it after its grace, and waits for its end.
func (p *Process) Stop(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.end(ctx, cmp.Or(p.command.Stop, syscall.SIGTERM))
}

// Kill ends the child without a warning, and waits for its end. It succeeds where
// the child has ended already.
func (p *Process) Kill(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.end(ctx, syscall.SIGKILL)
}

// end ends a child by a signal, and kills it after its grace, also where ctx ends before.
func (p *Process) end(ctx context.Context, signal syscall.Signal) error {
	_ = p.Signal(signal) // it may have ended
	if _, resume, err := pausing(); err == nil {
		_ = p.Signal(resume) // a paused child receives no other
	}
	kill := time.AfterFunc(cmp.Or(p.command.Grace, defaultGrace), func() {
		if !p.Ended() {
			killGroup(p.Pid())
		}
	})
	select {
	case <-p.done:
		kill.Stop()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.command.Name, context.Cause(ctx))
	}
}

// CanPause says what is missing where this system cannot pause a process.
func CanPause() error {
	_, _, err := pausing()
	return err
}

// Pause stops a process with SIGSTOP, and returns when all its threads have stopped:
// its connections stay, and get no answer.
func (p *Process) Pause(context.Context) error {
	stop, _, err := pausing()
	if err == nil {
		err = p.Signal(stop)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", p.command.Name, err)
	}
	// A thread that another processor runs goes on for a moment.
	for range 100 {
		if stopped(p.Pid()) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("pause %s: process %d runs on after SIGSTOP", p.command.Name, p.Pid())
}

// Resume continues a paused process.
func (p *Process) Resume(context.Context) error {
	_, resume, err := pausing()
	if err != nil {
		return fmt.Errorf("resume %s: %w", p.command.Name, err)
	}
	return p.Signal(resume)
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

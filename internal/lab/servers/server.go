package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// runner is what a server runs as: a process of its own, or a part of this one.
// Its methods are called in turn.
type runner interface {
	// Kill ends the server without a warning.
	Kill(ctx context.Context) error
	// Restart starts the server on the address and the data that it had, and kills
	// it first where it runs.
	Restart(ctx context.Context) error
	// Pause stops the server: its connections stay, and get no answer.
	Pause(ctx context.Context) error
	// Resume continues a paused server.
	Resume(ctx context.Context) error
	// Close ends the server for good. Closing twice is harmless.
	Close(ctx context.Context) error
}

// Spec says how to start a server as a process.
type Spec struct {
	// Name is the server's in errors.
	Name    string
	Program string
	// Folder has the data and the log; empty: a new one of the supervisor's.
	Folder string
	// Configure writes the configuration for a client port and returns the
	// arguments and what is added to the environment. Where another process has
	// taken the port, it is called with a second one.
	Configure func(folder string, port int) (args, env []string, err error)
	// Ready asks the server whether it answers, and whether it is this process: a
	// server of another run may have taken the port.
	Ready func(ctx context.Context, pid int) error
	// Log is where output goes; empty: server.log in the folder.
	Log string
	// Env is the environment, without what Configure adds; nil: that of this process.
	Env []string
	// Stop is the signal that ends the server, SIGKILL where it is 0: private data
	// goes with the server. Grace is how long it may take.
	Stop  syscall.Signal
	Grace time.Duration
}

// Server is a server that is a process of its own.
type Server struct {
	*Process // since the last start; nil before the first one

	spec       Spec
	supervisor *Supervisor
	command    Command
}

// Launch starts a server on a free port, and returns when it is ready.
func Launch(ctx context.Context, k *Supervisor, spec Spec) (*Server, error) {
	s, err := newServer(k, spec)
	if err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// start starts the server on a free port.
func (s *Server) start(ctx context.Context) error {
	return onFreePort(func(port int) error {
		if err := s.configure(port); err != nil {
			return err
		}
		return s.Restart(ctx)
	})
}

// newServer is a server that has no port yet and does not run.
func newServer(k *Supervisor, spec Spec) (s *Server, err error) {
	if spec.Folder == "" {
		if spec.Folder, err = os.MkdirTemp(k.Folder(), spec.Name+"-"); err != nil {
			return nil, err
		}
	}
	if spec.Log == "" {
		spec.Log = filepath.Join(spec.Folder, "server.log")
	}
	if spec.Stop == 0 {
		spec.Stop = syscall.SIGKILL
	}
	if spec.Env == nil {
		spec.Env = os.Environ()
	}
	return &Server{spec: spec, supervisor: k}, nil
}

func (s *Server) configure(port int) error {
	args, env, err := s.spec.Configure(s.spec.Folder, port)
	s.command = Command{
		Path: s.spec.Program, Args: args, Env: slices.Concat(s.spec.Env, env),
		Log: s.spec.Log, Stop: s.spec.Stop, Grace: s.spec.Grace,
	}
	return err
}

// Restart starts the process and waits until it answers.
func (s *Server) Restart(ctx context.Context) (err error) {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	if s.Process, err = s.supervisor.Run(ctx, s.command); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		return errors.Join(err, s.Kill(context.WithoutCancel(ctx)))
	}
	return nil
}

const (
	// startWithin bounds the start of a server on a machine that is busy.
	startWithin = 60 * time.Second
	// askWithin bounds one question to a server that starts, so that its end is
	// noticed soon.
	askWithin = 2 * time.Second
	startPoll = 30 * time.Millisecond
)

// await asks the server until it answers. Where it ends instead, or does not answer
// in time, the error shows the end of its log.
func (s *Server) await(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		asking, end := context.WithTimeout(limited, askWithin)
		err := s.spec.Ready(asking, s.Pid())
		end()
		if err == nil {
			return nil
		}
		select {
		case <-s.Done():
			return fmt.Errorf("start %s: it ended (%s); the end of its log:\n%s", s.spec.Name, s.State(), logTail(s.spec.Log))
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("start %s: %w", s.spec.Name, context.Cause(ctx))
			}
			return fmt.Errorf("start %s: no answer within %s (%w); the end of its log:\n%s", s.spec.Name, startWithin, err, logTail(s.spec.Log))
		case <-time.After(startPoll):
		}
	}
}

// Close stops the process as its Spec says.
func (s *Server) Close(ctx context.Context) error { return s.Stop(ctx) }

// Ports are below the range from which systems take the near ends of outgoing
// connections: a client cannot take one between its choice and its server's bind.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// FreePort finds a port on 127.0.0.1 on which no process listens, and claims it for this
// process: no FreePort of another one finds it while its server is down or its proxy cut
// off. A process that does not ask may take it; Launch tries a second one then.
func FreePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.N(highestPort-lowestPort)
		if !claimPort(port) {
			continue
		}
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1 in 100 tries")
}

// freePorts finds so many.
func freePorts(count int) (ports []int, err error) {
	ports = make([]int, count)
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// claimPort binds the UDP port of the same number, which none of the servers uses. It is a
// bare descriptor, so that nothing but the end of the process closes it.
func claimPort(port int) bool {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return false
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		syscall.Close(fd) //nolint:errcheck // nothing was sent
		return false
	}
	return true
}

// Loopback is the loopback address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portTries bounds how often a server is started whose port another process took.
const portTries = 3

// onFreePort starts a server on a free port, and on a second one where another
// process was quicker to bind the first.
func onFreePort(start func(port int) error) error {
	for try := 1; ; try++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		err = start(port)
		if err == nil || try == portTries || !strings.Contains(strings.ToLower(err.Error()), "already in use") {
			return err
		}
	}
}

// listening reports whether a process listens at an address.
func listening(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func closeAll[S runner](ctx context.Context, all []S) error {
	errs := make([]error, len(all))
	for i, one := range all {
		errs[i] = one.Close(ctx)
	}
	return errors.Join(errs...)
}

type closer interface {
	Close(ctx context.Context) error
}

// closeAfter ends what has been started where the rest does not start.
func closeAfter(ctx context.Context, started closer, err *error) {
	if *err != nil {
		*err = errors.Join(*err, started.Close(context.WithoutCancel(ctx)))
	}
}

// eventually repeats a question until the answer is yes.
func eventually(ctx context.Context, what string, ask func(ctx context.Context) (yes bool, err error)) error {
	limited, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		yes, err := ask(limited)
		if yes {
			return nil
		}
		if late := pause.For(limited, leaderPoll); late != nil {
			return errors.Join(fmt.Errorf("wait for %s: %w", what, late), err)
		}
	}
}

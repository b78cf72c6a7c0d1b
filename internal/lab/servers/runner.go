package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// runner is what a server runs as: a process of its own, or a part of this one.
// Its methods are called in turn.
type runner interface {
	// Kill ends the server without a warning.
	Kill(ctx context.Context) error
	// Restart starts the server again on the address that it had, and kills it
	// first where it runs.
	Restart(ctx context.Context) error
	// Pause stops the server where it stands: its connections stay, and nothing
	// is answered on them.
	Pause(ctx context.Context) error
	// Resume lets a paused server go on.
	Resume(ctx context.Context) error
	// Close ends the server for good. Closing twice is harmless.
	Close(ctx context.Context) error
}

// child is a server that is a process of its own.
type child struct {
	name       string
	supervisor *Supervisor
	command    Command
	ask        func(context.Context) error // whether it answers
	running    *Process                    // nil before the first start
}

// newChild is a server that has not been started yet. It is never asked to
// end: its data goes with it, so that nothing is lost by ending at once.
func newChild(k *Supervisor, name string, command Command, ask func(context.Context) error) *child {
	command.Stop = syscall.SIGKILL
	return &child{name: name, supervisor: k, command: command, ask: ask}
}

// askWithin bounds one question to a server that starts, so that its end is
// noticed soon.
const askWithin = 2 * time.Second

// Restart starts the process and waits until it answers.
func (c *child) Restart(ctx context.Context) error {
	if err := c.Kill(ctx); err != nil {
		return err
	}
	started, err := c.supervisor.Run(ctx, c.command)
	if err != nil {
		return err
	}
	c.running = started
	err = Await(ctx, c.name, started, c.command.Log, func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		return c.ask(limited)
	})
	if err != nil {
		return errors.Join(err, c.Kill(context.WithoutCancel(ctx)))
	}
	return nil
}

// Kill is SIGKILL.
func (c *child) Kill(ctx context.Context) error {
	if c.running == nil {
		return nil
	}
	return c.running.Stop(ctx)
}

// Close is the same: it could not be quicker.
func (c *child) Close(ctx context.Context) error { return c.Kill(ctx) }

// Pause is SIGSTOP.
func (c *child) Pause(ctx context.Context) error {
	if err := c.running.Pause(ctx); err != nil {
		return fmt.Errorf("pause %s: %w", c.name, err)
	}
	return nil
}

// Resume is SIGCONT.
func (c *child) Resume(ctx context.Context) error { return c.running.Resume(ctx) }

// embedded is a server that is a part of this process.
type embedded struct {
	name  string
	start func(context.Context) (stop func(), err error)
	stop  func() // nil where it does not run
}

// Restart starts the server.
func (e *embedded) Restart(ctx context.Context) (err error) {
	if err := e.Kill(ctx); err != nil {
		return err
	}
	e.stop, err = e.start(ctx)
	return err
}

// Kill is as near to a kill as a part of a process can come: its connections
// are closed.
func (e *embedded) Kill(context.Context) error {
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
	return nil
}

// Close ends the server.
func (e *embedded) Close(ctx context.Context) error { return e.Kill(ctx) }

// Pause fails: nothing pauses a part of a process.
func (e *embedded) Pause(context.Context) error {
	return fmt.Errorf("pause %s: it runs inside this process", e.name)
}

// Resume fails as Pause does.
func (e *embedded) Resume(context.Context) error {
	return fmt.Errorf("resume %s: it runs inside this process", e.name)
}

// listening tells whether anybody is at an address.
func listening(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// onFreePort starts a server on a free port, and on another one where somebody
// took it between our finding it and the server's binding it.
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

package locktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
)

// role marks a test binary that was started as a process that holds locks.
const role = "STOCKD_LOCKTEST_PROCESS"

// order is one line to such a process; the first is doConnect.
type order struct {
	Do   string `json:"do"`
	Name string `json:"name"`

	// Entry and At belong to doConnect.
	Entry string    `json:"entry"`
	At    addresses `json:"at"`
}

// What a process can do.
const (
	doConnect = "connect"
	doAcquire = "acquire" // take the name and keep it
	doRelease = "release" // what was acquired last
	doReport  = "report"  // what became of it
)

// answer is one line back. It comes when the order is done.
type answer struct {
	Error string `json:"error"`
	// Lost reports that Error is lock.ErrLost; in a report, that the lease's context
	// ended with it.
	Lost bool `json:"lost"`
	// Token is that of the lease, after doAcquire.
	Token uint64 `json:"token"`
}

// worker is the other process.
type worker struct {
	locks   []Lock
	replica *replica
	lease   lock.Lease
}

// serve is the whole life of the other process. It ends with its standard input, so that
// it outlives no test.
func serve(orders io.Reader, answers io.Writer, locks []Lock) (status int) {
	w := worker{locks: locks}
	in, out := json.NewDecoder(bufio.NewReader(orders)), json.NewEncoder(answers)
	for {
		var next order
		if err := in.Decode(&next); err != nil { //nolint:musttag // this program wrote it
			return 0
		}
		a, err := w.do(next)
		if err != nil {
			a.Error, a.Lost = err.Error(), errors.Is(err, lock.ErrLost)
		}
		if err := out.Encode(a); err != nil {
			return 1
		}
	}
}

func (w *worker) do(next order) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch next.Do {
	case doConnect:
		i := slices.IndexFunc(w.locks, func(l Lock) bool { return l.Name == next.Entry })
		if i < 0 {
			return a, fmt.Errorf("TestMain was not given the lock %s", next.Entry)
		}
		w.replica, err = next.At.open(w.locks[i].Entry, nil)
	case doAcquire:
		if w.lease, err = w.replica.Acquire(ctx, next.Name); err == nil {
			a.Token = w.lease.Token()
		}
	case doRelease:
		err = w.lease.Release(ctx)
	case doReport:
		a.Lost = errors.Is(context.Cause(w.lease.Context()), lock.ErrLost)
	default:
		err = fmt.Errorf("no such order: %q", next.Do)
	}
	return a, err
}

// process is this end.
type process struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
}

// process starts another process with a replica of its own. It is gone with the
// test.
func (s *subject) process(t *testing.T) *process {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), role+"=1")
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	p := &process{cmd: cmd, orders: json.NewEncoder(in), answers: json.NewDecoder(bufio.NewReader(out))}
	t.Cleanup(func() {
		p.kill()
		_ = cmd.Wait() // it was killed
	})
	p.must(t, order{Do: doConnect, Entry: s.lock.Name, At: s.site.at})
	return p
}

func (p *process) send(t *testing.T, o order) {
	t.Helper()
	if err := p.orders.Encode(o); err != nil { //nolint:musttag // this program reads it
		t.Fatalf("send %s to the process: %v", o.Do, err)
	}
}

// receive waits for the answer to the last order; the process itself bounds that.
func (p *process) receive(t *testing.T) answer {
	t.Helper()
	var a answer
	if err := p.answers.Decode(&a); err != nil {
		t.Fatalf("the process ended: %v", err)
	}
	return a
}

func (p *process) ask(t *testing.T, o order) answer {
	t.Helper()
	p.send(t, o)
	return p.receive(t)
}

func (p *process) must(t *testing.T, o order) answer {
	t.Helper()
	a := p.ask(t, o)
	if a.Error != "" {
		t.Fatalf("%s in the process: %s", o.Do, a.Error)
	}
	return a
}

// kill ends it without a warning; freeze and thaw stop it and let it go on.
func (p *process) kill()   { _ = p.cmd.Process.Kill() } // it may have ended
func (p *process) freeze() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw()   { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/config"
)

const (
	// exitWithin is how long after its drain a replica ends, whatever its backends do.
	exitWithin = 2 * time.Second
	// exitMargin of that is for the process itself.
	exitMargin = 200 * time.Millisecond
	// closeReserve is what the parts that are closed last have of it: to close a pool
	// ends what hangs on it.
	closeReserve = 600 * time.Millisecond
	// minClose is the least that the closing of a part is waited for.
	minClose = 100 * time.Millisecond
)

// errForced reports that the replica exited before its parts were closed.
var errForced = errors.New("exit forced")

// closing holds the open parts of a replica, in the order in which they were opened.
//
//  1. The replica exits within 2 s after its drain, although a part does not close. The parts
//     after one that does not close are closed all the same.
type closing struct {
	limit   time.Duration // from the signal to the exit
	expired chan struct{} // closed when the replica has to exit

	mu    sync.Mutex
	parts []part
	until time.Time // when it has to exit; zero before the signal
}

// part is one of them.
type part struct {
	name  string
	close func() error
}

// newClosing forces the exit a bounded time after ctx has ended.
func newClosing(ctx context.Context, c config.HTTP) *closing {
	o := &closing{limit: c.DrainDelay + c.Drain + exitWithin - exitMargin, expired: make(chan struct{})}
	context.AfterFunc(ctx, func() { o.arm() })
	return o
}

// arm sets the time of the exit, once.
func (o *closing) arm() (until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until.IsZero() {
		o.until = time.Now().Add(o.limit)
		time.AfterFunc(o.limit, func() { close(o.expired) })
	}
	return o.until
}

// run does work, and returns with it or when the replica has to exit: the end of
// the process then ends what is still open.
func (o *closing) run(ctx context.Context, log *slog.Logger, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-o.expired:
		open := o.open()
		log.ErrorContext(ctx, "exit forced", "open", open, "after", o.limit)
		return fmt.Errorf("%w after %s: still open: %s", errForced, o.limit, strings.Join(open, ", "))
	}
}

func (o *closing) add(name string, closePart func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = append(o.parts, part{name, closePart})
}

// open names what is open, the last opened first.
func (o *closing) open() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for _, p := range slices.Backward(o.parts) {
		names = append(names, p.name)
	}
	return names
}

// close closes the parts, the last opened first. One that does not end in time is
// left behind, and waited for when the others are closed.
func (o *closing) close() error {
	until := o.arm() // it may be a listener that fails, and no signal
	o.mu.Lock()
	parts := slices.Clone(o.parts)
	o.mu.Unlock()
	var errs []error
	var late []<-chan error
	for _, p := range slices.Backward(parts) {
		done := o.begin(p)
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-time.After(max(minClose, time.Until(until)-closeReserve)):
			late = append(late, done)
		}
	}
	for _, done := range late {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

func (o *closing) begin(p part) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := p.close()
		o.mu.Lock()
		o.parts = slices.DeleteFunc(o.parts, func(other part) bool { return other.name == p.name })
		o.mu.Unlock()
		done <- err
	}()
	return done
}

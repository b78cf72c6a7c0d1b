// Package reload keeps the parsed content of files, and reads them again when they change.
package reload

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// every is the polling interval of the files.
const every = time.Second

// Files is the content of the last valid version of the files.
type Files[T any] struct {
	paths   []string
	read    func() (T, error)
	current atomic.Pointer[T]
	seen    []os.FileInfo // of the files, when they were last read; nil for one that is missing
	failed  string        // the error of that, or empty
}

// Open reads the files by read, whose errors pass through. An empty path is no file.
func Open[T any](read func() (T, error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, read: read}
	f.seen = f.stat() // before the content: what is written meanwhile is seen the next time
	content, err := read()
	if err != nil {
		return nil, err
	}
	f.current.Store(&content)
	return f, nil
}

// Get returns the current content.
func (f *Files[T]) Get() T { return *f.current.Load() }

// Keep reads the files again when they have changed, as it finds once a second, until ctx ends.
// report gets the error of each time that they are read, or nil. After an error, what was read
// before stays, and they are read every second: a file may become readable without a change that
// shows, such as one of its owner. The same error is reported once.
func (f *Files[T]) Keep(ctx context.Context, report func(error)) {
	for pause.For(ctx, every) == nil {
		f.refresh(report)
	}
}

func (f *Files[T]) refresh(report func(error)) {
	now := f.stat()
	changed, failed := !same(f.seen, now), f.failed
	if !changed && failed == "" {
		return
	}
	f.seen = now
	content, err := f.read()
	if err == nil {
		f.current.Store(&content)
		f.failed = ""
	} else {
		f.failed = err.Error()
	}
	if changed || f.failed != failed {
		report(err)
	}
}

func (f *Files[T]) stat() []os.FileInfo {
	infos := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil { // otherwise read reports it
			infos[i] = info
		}
	}
	return infos
}

// same reports whether files are unchanged.
func same(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime())) {
			return false
		}
	}
	return true
}

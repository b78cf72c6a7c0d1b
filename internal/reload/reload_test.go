package reload_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/reload"
)

// text is a file that is read as text.
type text struct {
	path  string
	after func(reads int) // called when it was read

	mu       sync.Mutex
	failure  error // of each read; nil: it can be read
	reads    int
	reported []error
}

func newText(t *testing.T, content string) *text {
	t.Helper()
	f := &text{path: filepath.Join(t.TempDir(), "text"), after: func(int) {}}
	f.write(t, content)
	return f
}

func (f *text) write(t *testing.T, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(f.path, []byte(content), 0o600))
}

// replace puts another file in its place, with the same size and time.
func (f *text) replace(t *testing.T, content string) {
	t.Helper()
	before := must.Get(os.Stat(f.path))(t)
	next := &text{path: f.path + ".new"}
	next.write(t, content)
	must.Do(t, os.Chtimes(next.path, before.ModTime(), before.ModTime()))
	must.Do(t, os.Rename(next.path, f.path))
}

func (f *text) read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	content, err := os.ReadFile(f.path)
	f.after(f.reads)
	return string(content), errors.Join(err, f.failure)
}

func (f *text) fail(failure error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = failure
}

func (f *text) report(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported = append(f.reported, err)
}

// seen is how often it was read, and what was reported of that since it was called last.
func (f *text) seen() (reads int, reported []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reads, reported = f.reads, f.reported
	f.reported = nil
	return reads, reported
}

func (f *text) open(t *testing.T, paths ...string) *reload.Files[string] {
	t.Helper()
	files := must.Get(reload.Open(f.read, paths...))(t)
	go files.Keep(t.Context(), f.report)
	return files
}

// Files are read again when they have changed, within a second, and then until that succeeds.
func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	f, other := newText(t, "one"), newText(t, "other")
	synctest.Test(t, func(t *testing.T) {
		files := f.open(t, "", other.path, f.path)
		time.Sleep(time.Second / 2) // what follows is between two looks
		for _, step := range []struct {
			name   string
			change func()
			want   string
			reads  int
			report bool
			fails  bool
		}{
			{"nothing", func() {}, "one", 0, false, false},
			{"another size", func() { f.write(t, "two, 2") }, "two, 2", 1, true, false},
			{"another file of the same size and time", func() { f.replace(t, "TWO, 2") }, "TWO, 2", 1, true, false},
			{"the same size, later", func() {
				f.write(t, "two, 3")
				later := time.Now().Add(time.Hour)
				must.Do(t, os.Chtimes(f.path, later, later))
			}, "two, 3", 1, true, false},
			{"another size at the same time", func() {
				before := must.Get(os.Stat(f.path))(t)
				f.write(t, "two")
				must.Do(t, os.Chtimes(f.path, before.ModTime(), before.ModTime()))
			}, "two", 1, true, false},
			{"the other file", func() { other.write(t, "changed") }, "two", 1, true, false},
			{"no file", func() {
				must.Do(t, os.Remove(f.path))
			}, "two", 1, true, true},
			{"still none", func() {}, "two", 1, false, false},
			{"a file again", func() { f.write(t, "three") }, "three", 1, true, false},
		} {
			before, _ := f.seen()
			step.change()
			time.Sleep(time.Second)
			synctest.Wait()
			reads, reported := f.seen()
			if got := files.Get(); got != step.want || reads-before != step.reads {
				t.Errorf("%s: it is %q after %d reads, want %q after %d", step.name, got, reads-before, step.want, step.reads)
			}
			if (len(reported) == 1) != step.report || len(reported) > 0 && (reported[0] != nil) != step.fails {
				t.Errorf("%s: reported is %v", step.name, reported)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A file that cannot be read when it has changed is read when it can: a new owner, or a mode, is no change
// of what is compared.
func TestAFileThatCouldNotBeReadIsReadAgain(t *testing.T) {
	f := newText(t, "one")
	synctest.Test(t, func(t *testing.T) {
		files := f.open(t, f.path)
		f.write(t, "two, 2")
		for _, step := range []struct {
			failure error
			want    string
		}{{errors.New("permission denied"), "one"}, {errors.New("input/output error"), "one"}, {nil, "two, 2"}} {
			f.fail(step.failure)
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, reported := f.seen(); files.Get() != step.want || len(reported) != 1 || !errors.Is(reported[0], step.failure) {
				t.Errorf("with %v: it is %q, and reported is %v", step.failure, files.Get(), reported)
			}
		}
	})
}

// What is written while the file is read is seen the next time.
func TestAChangeDuringAReadIsNotLost(t *testing.T) {
	f := newText(t, "one")
	f.after = func(reads int) {
		if reads <= 2 { // at the start, and once more
			f.write(t, "one, two, three"[:reads*5])
		}
	}
	synctest.Test(t, func(t *testing.T) {
		files := f.open(t, f.path)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if reads, _ := f.seen(); files.Get() != "one, two, " || reads != 3 {
			t.Errorf("after %d reads it is %q", reads, files.Get())
		}
	})
}

func TestWhatCannotBeReadIsNotOpened(t *testing.T) {
	broken := errors.New("broken")
	if files, err := reload.Open(func() (string, error) { return "", broken }, "/nonexistent"); !errors.Is(err, broken) || files != nil {
		t.Errorf("it is opened as %v, %v", files, err)
	}
}

func TestFilesAreKeptUntilTheContextEnds(t *testing.T) {
	f := newText(t, "one")
	synctest.Test(t, func(t *testing.T) {
		files := must.Get(reload.Open(f.read, f.path))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		began := time.Now()
		files.Keep(ctx, func(err error) { t.Errorf("reported is %v", err) })
		if reads, _ := f.seen(); time.Since(began) != 1500*time.Millisecond || reads != 1 {
			t.Errorf("it was kept for %s and read %d times", time.Since(began), reads)
		}
	})
}

// Editors and shells begin a file with a byte order mark, or write it in UTF-16: that is no part of a secret.
func TestATextIsReadInAnyUnicodeUpToItsBound(t *testing.T) {
	most := strings.Repeat("x", reload.Largest)
	for name, c := range map[string]struct{ content, want, fails string }{
		"plain":                       {content: "a\xe4\r\n", want: "a\xe4\r\n"},
		"empty":                       {},
		"a mark":                      {content: "\xef\xbb\xbfa\n", want: "a\n"},
		"a mark alone":                {content: "\xef\xbb\xbf"},
		"a mark that is not first":    {content: "a\xef\xbb\xbf", want: "a\xef\xbb\xbf"},
		"UTF-16 of Windows":           {content: "\xff\xfea\x00\xe4\x00", want: "aä"},
		"UTF-16, big end first":       {content: "\xfe\xff\x00a\x00\xe4", want: "aä"},
		"bytes that are no text":      {content: "\xff\xfe\x01", want: "\xff\xfe\x01"},
		"as large as it may be":       {content: most, want: most},
		"one byte more than it may":   {content: most + "x", fails: "has more than 1048576 bytes"},
		"a file that is not there":    {fails: "no such file"},
		"a folder in place of a file": {fails: "is a directory"},
	} {
		path := filepath.Join(t.TempDir(), "text")
		switch {
		case strings.Contains(c.fails, "directory"):
			path = t.TempDir()
		case !strings.Contains(c.fails, "no such"):
			must.Do(t, os.WriteFile(path, []byte(c.content), 0o600))
		}
		got, err := reload.ReadText(path)
		if string(got) != c.want || (err != nil) != (c.fails != "") || err != nil && (!strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: it is read as %.20q, %v", name, got, err)
		}
	}
}

// A file without an end is not read to it.
func TestAFileWithoutAnEndIsRejected(t *testing.T) {
	if _, err := reload.ReadText("/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("it is read: %v", err)
	}
}

package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Writer writes lines to a file, each with one write to the system: a process
// that is killed has left every line that it added. It is safe for goroutines.
type Writer struct {
	file *os.File
}

// Create makes the file, and empties one that is there.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return &Writer{file: file}, nil
}

// Append goes on with a file, or makes it. Where its last writer was stopped
// within a line, that line is taken away: behind it every line would be broken. No other
// writer may have the file open, whose line could be taken away for that.
func Append(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("append to history: %w", err)
	}
	content, err := io.ReadAll(file)
	if err == nil {
		err = file.Truncate(int64(bytes.LastIndexByte(content, '\n') + 1))
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("append to history: %w", err)
	}
	return &Writer{file: file}, nil
}

// Add writes a line.
func (w *Writer) Add(line Line) error {
	content, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	if _, err := w.file.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Copy adds the lines of another file that happened at from or later. Of a lease
// that was asked for before, nothing is copied. The other file may still be
// written to: a last line without an end is left for another time.
func (w *Writer) Copy(path string, from time.Time) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("copy history: %w", err)
	}
	known := make(map[string]bool)
	for text := range bytes.Lines(content) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			return nil
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("copy history: %w: %w", ErrBroken, err)
		}
		if !line.since(from, known) {
			continue
		}
		if _, err := w.file.Write(text); err != nil {
			return fmt.Errorf("copy history: %w", err)
		}
	}
	return nil
}

// since tells whether a line happened at from or later; known are the leases that
// were asked for since then.
func (l Line) since(from time.Time, known map[string]bool) bool {
	switch {
	case l.Lease != nil && l.Lease.What == Asked:
		known[l.Lease.ID] = !l.Lease.At.Before(from)
		return known[l.Lease.ID]
	case l.Lease != nil:
		return known[l.Lease.ID]
	case l.Trace != nil:
		return !l.Trace.Start().Before(from)
	case l.Mark != nil:
		return !l.Mark.At.Before(from)
	default:
		return true
	}
}

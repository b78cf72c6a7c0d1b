package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
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
// within a line, that line is taken away: behind it every line would be broken.
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

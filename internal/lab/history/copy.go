package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

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
	case l.Mark != nil:
		return !l.Mark.At.Before(from)
	default:
		return true
	}
}

// Package testlog keeps a log that a test reads while it is written.
package testlog

import (
	"strings"
	"sync"
)

// Lines are those of a log, which goes on while they are read.
type Lines struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write takes a line.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

// String is all lines so far.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Contains reports whether they have a text.
func (l *Lines) Contains(text string) bool { return strings.Contains(l.String(), text) }

// Count is how often they have a text.
func (l *Lines) Count(text string) int { return strings.Count(l.String(), text) }

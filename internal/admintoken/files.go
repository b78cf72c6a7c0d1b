package admintoken

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Options are where tokens come from.
type Options struct {
	// Token is one that is configured itself; TokenFile is a file that holds one. The name
	// of either is Owner.
	Token, TokenFile string
	// TokensFile is a file of names and tokens.
	TokensFile string
	// Strict refuses a weak Token, and one in TokenFile. Those in TokensFile are never weak.
	Strict bool
}

// Any tells whether there is a source of tokens at all.
func (o Options) Any() bool { return o.Token != "" || o.TokenFile != "" || o.TokensFile != "" }

// Files are the tokens of the sources, as they were when the files were last whole.
type Files struct {
	options Options
	current atomic.Pointer[Set]
	seen    []os.FileInfo // of the files, when they were last read; nil for one that is missing
}

// Open reads the tokens. The error names the file, and the line where there is one.
func Open(o Options) (*Files, error) {
	f := &Files{options: o, seen: stat(o)}
	set, err := read(o)
	if err != nil {
		return nil, err
	}
	f.current.Store(set)
	return f, nil
}

// Find returns the name of a token.
func (f *Files) Find(token string) (name string, ok bool) { return f.current.Load().Find(token) }

// every is the pause between two looks at the files.
const every = time.Second

// Keep reads the files again when they change, until ctx ends. While they are not whole,
// the tokens that were read last are in force.
func (f *Files) Keep(ctx context.Context, log *slog.Logger) {
	if f.options.TokenFile == "" && f.options.TokensFile == "" {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.Refresh(ctx, log)
		case <-ctx.Done():
			return
		}
	}
}

// Refresh reads the files again if they have changed since it was called last. It must
// not be called from several goroutines at a time.
func (f *Files) Refresh(ctx context.Context, log *slog.Logger) {
	now := stat(f.options)
	if same(f.seen, now) {
		return
	}
	f.seen = now // before the content: what is written meanwhile is seen the next time
	set, err := read(f.options)
	if err != nil {
		log.WarnContext(ctx, "admin tokens not reloaded", "error", err, "in_force", f.current.Load().Names())
		return
	}
	f.current.Store(set)
	log.InfoContext(ctx, "admin tokens reloaded", "names", set.Names())
}

func read(o Options) (*Set, error) {
	token := o.Token
	if o.TokenFile != "" {
		content, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimRight(string(content), "\r\n")
	}
	set := new(Set)
	if o.Token != "" || o.TokenFile != "" {
		if err := Usable(token, o.Strict); err != nil {
			return nil, fmt.Errorf("%s %w", o.source(), err)
		}
		if err := set.add(Owner, token); err != nil {
			return nil, err
		}
	}
	if o.TokensFile == "" {
		return set, nil
	}
	content, err := os.ReadFile(o.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return set, set.addLines(o.TokensFile, string(content))
}

// source names where the token of Owner is from.
func (o Options) source() string {
	if o.TokenFile != "" {
		return o.TokenFile + ": the token"
	}
	return "the token"
}

// Usable returns why a token cannot be sent or is too short or, if strict, weak; or nil.
// The error does not show it.
func Usable(token string, strict bool) error {
	switch {
	case token != strings.TrimSpace(token) || strings.ContainsAny(token, "\r\n"):
		return errors.New("must be one line without blanks at its ends: a header cannot carry them")
	case strict:
		return Weak(token)
	case len(token) < MinLength:
		return fmt.Errorf("must have at least %d characters, not %d", MinLength, len(token))
	default:
		return nil
	}
}

func stat(o Options) []os.FileInfo {
	var infos []os.FileInfo
	for _, path := range []string{o.TokenFile, o.TokensFile} {
		info, err := os.Stat(path)
		if err != nil {
			info = nil // read reports it
		}
		infos = append(infos, info)
	}
	return infos
}

// same tells whether files are the same ones, unchanged.
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

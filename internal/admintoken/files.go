package admintoken

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/stockd/stockd/internal/reload"
)

// Options are where tokens come from.
type Options struct {
	// Token is one that is configured itself; TokenFile is a file that holds one. The name
	// of either is Owner.
	Token, TokenFile string
	// TokensFile is a file of names and tokens.
	TokensFile string
	// Strict rejects a weak Token, and one in TokenFile. Those in TokensFile are never weak.
	Strict bool
}

// Any reports whether a source of tokens is configured.
func (o Options) Any() bool { return o.Token != "" || o.TokenFile != "" || o.TokensFile != "" }

// Files are the tokens of the sources, from the last valid version of the files.
type Files struct{ files *reload.Files[*Set] }

// Open reads the tokens. The error names the file, and the line where there is one.
func Open(o Options) (*Files, error) {
	files, err := reload.Open(func() (*Set, error) { return read(o) }, o.TokenFile, o.TokensFile)
	if err != nil {
		return nil, err
	}
	return &Files{files}, nil
}

// Find returns the name of a token.
func (f *Files) Find(token string) (name string, ok bool) { return f.files.Get().Find(token) }

// Names lists the names of the tokens.
func (f *Files) Names() []string { return f.files.Get().Names() }

// Keep reads the files again when they change, until ctx ends. While they are
// invalid, the tokens that were read last stay valid.
func (f *Files) Keep(ctx context.Context, log *slog.Logger) { f.files.Keep(ctx, f.report(ctx, log)) }

func (f *Files) report(ctx context.Context, log *slog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.WarnContext(ctx, "admin tokens not reloaded", "error", err, "in_force", f.files.Get().Names())
			return
		}
		log.InfoContext(ctx, "admin tokens reloaded", "names", f.files.Get().Names())
	}
}

func read(o Options) (*Set, error) {
	token := o.Token
	if o.TokenFile != "" {
		content, err := reload.ReadText(o.TokenFile)
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
	content, err := reload.ReadText(o.TokensFile)
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
		return errors.New("must be one line without spaces at its ends: a header cannot carry them")
	case strict:
		return Weak(token)
	case len(token) < MinLength:
		return fmt.Errorf("must have at least %d characters, not %d", MinLength, len(token))
	default:
		return nil
	}
}

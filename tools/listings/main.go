// Command listings writes the code of each strategy, as stocklab live shows it beside the
// lanes, and the code on the pages of docs/lab: run it after a change of that code.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stockd/stockd/internal/service/strategy"
)

const target = "internal/lab/live/listings.json"

// listing is as the page reads it.
type listing struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func main() {
	content, err := write(".")
	if err == nil {
		err = os.WriteFile(target, content, 0o644)
	}
	if err == nil {
		err = fillPages(".", func(page, text string) error { return os.WriteFile(page, []byte(text), 0o644) }) //nolint:gosec // a page that was found
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "listings:", err)
		os.Exit(1)
	}
}

// write makes the file from a tree.
func write(root string) ([]byte, error) {
	all := make(map[string][]listing)
	for _, entry := range strategy.Registry() {
		list, err := of(root, entry.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name, err)
		}
		all[entry.Name] = list
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(all)
	return b.Bytes(), err
}

// of is the file that names a strategy or a lock, and what it rests on.
func of(root, name string) ([]listing, error) {
	own, err := fileOf(root, name)
	if err != nil {
		return nil, err
	}
	first, err := body(root, own)
	if err != nil {
		return nil, err
	}
	list := []listing{first}
	scripts, err := lua(root, own, first.Text)
	if err != nil {
		return nil, err
	}
	list = append(list, scripts...)
	for _, path := range files()[name] {
		found, err := whole(root, path)
		if err != nil {
			return nil, err
		}
		list = append(list, found)
	}
	for _, b := range bases() {
		if !b.used.MatchString(own + "\n" + first.Text) {
			continue
		}
		for _, f := range b.functions {
			found, err := function(root, f[0], f[1])
			if err != nil {
				return nil, err
			}
			list = append(list, found)
		}
	}
	return list, nil
}

// files are those that a strategy consists of beside its own, where no call names them.
func files() map[string][]string {
	return map[string][]string{
		"redis-stock":   {"internal/service/hot/lua/2_sell.lua"},
		"sql-procedure": {"migrations/mysql/00001_schema.sql"},
	}
}

func whole(root, path string) (listing, error) {
	content, err := os.ReadFile(filepath.Join(root, path))
	found := listing{Path: path, Line: 1, Text: string(content)}
	if before, procedure, ok := strings.Cut(found.Text, "-- +goose StatementBegin\n"); ok { // of a schema, its procedure
		found.Text, _, _ = strings.Cut(procedure, "-- +goose StatementEnd\n")
		found.Line += strings.Count(before, "\n") + 1
	}
	return found, err
}

// base is what strategies rest on whose own file has such words, its path before them.
type base struct {
	used      *regexp.Regexp
	functions [][2]string
}

func bases() []base {
	const (
		selling = "internal/service/strategy/"
		locks   = "internal/lock/"
	)
	return []base{
		{regexp.MustCompile(`(?s)^internal/lock/redis/.*\.poll\(`), [][2]string{{locks + "redis/weak.go", "poll"}}},
		{regexp.MustCompile(`deleteBlindly|redis-setnx`), [][2]string{{locks + "redis/weak.go", "deleteBlindly"}}},
		{regexp.MustCompile(`newHashLock`), [][2]string{{locks + "redis/reentrant.go", "Acquire"}}},
		{regexp.MustCompile(`sessionLock`), [][2]string{{locks + "sql/session.go", "Acquire"}}},
		{regexp.MustCompile(`newQueue\(`), [][2]string{{locks + "zk/queue.go", "acquire"}}},
		{regexp.MustCompile(`newConditional\(`), [][2]string{{selling + "conditional.go", "takeAll"}}},
		{regexp.MustCompile(`SubtractIfEnough`), [][2]string{{"internal/repo/tx.go", "SubtractIfEnough"}}},
		{regexp.MustCompile(`newGuarded\(|lock\.Entry`), [][2]string{{selling + "guarded.go", "hold"}}},
		{regexp.MustCompile(`readCheckWrite\(|process\.New\(\)|lock\.Entry|unguarded\{`), [][2]string{
			{selling + "read_check_write.go", "readCheckWrite"}, {selling + "read_check_write.go", "setStock"}, {"internal/repo/tx.go", "SetStock"},
		}},
	}
}

// fileOf finds the file of a strategy, which has its name, or that in which a lock is named.
func fileOf(root, name string) (string, error) {
	own := "internal/service/strategy/" + strings.ReplaceAll(name, "-", "_") + ".go"
	if _, err := os.Stat(filepath.Join(root, own)); err == nil {
		return own, nil
	}
	for _, pattern := range []string{"internal/lock/*/*.go", "internal/service/strategy/*.go"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			if !strings.HasSuffix(path, "_test.go") && strings.Contains(string(content), `"`+name+`"`) && strings.Contains(string(content), "Entry{") {
				relative, err := filepath.Rel(root, path)
				return filepath.ToSlash(relative), err
			}
		}
	}
	return "", errors.New("no file has an entry of this name")
}

// source is a file that was parsed.
type source struct {
	text string
	set  *token.FileSet
	file *ast.File
}

func parse(root, path string) (s source, err error) {
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return s, err
	}
	s.text, s.set = string(content), token.NewFileSet()
	s.file, err = parser.ParseFile(s.set, path, content, parser.ParseComments)
	return s, err
}

// from is the text from one place to another.
func (s source) from(path string, from, to token.Pos) listing {
	a := s.set.Position(from)
	return listing{Path: path, Line: a.Line, Text: s.text[a.Offset:s.set.Position(to).Offset]}
}

// body is a file without its imports.
func body(root, path string) (listing, error) {
	s, err := parse(root, path)
	if err != nil {
		return listing{}, err
	}
	for _, d := range s.file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		return s.from(path, begin(d), s.file.FileEnd), nil
	}
	return listing{}, fmt.Errorf("%s declares nothing", path)
}

func begin(d ast.Decl) token.Pos {
	var doc *ast.CommentGroup
	switch d := d.(type) {
	case *ast.GenDecl:
		doc = d.Doc
	case *ast.FuncDecl:
		doc = d.Doc
	}
	if doc != nil {
		return doc.Pos()
	}
	return d.Pos()
}

// function is a function of a file, a method of whatever type, or that of the type named before a dot.
func function(root, path, name string) (listing, error) {
	s, err := parse(root, path)
	if err != nil {
		return listing{}, err
	}
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && (f.Name.Name == name || receiver(f)+"."+f.Name.Name == name) {
			found := s.from(path, begin(f), f.End())
			found.Text += "\n"
			return found, nil
		}
	}
	return listing{}, fmt.Errorf("%s has no %s", path, name)
}

// receiver is the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	return fmt.Sprint(of)
}

// lua is the scripts that a text of Go makes.
func lua(root, own, text string) (list []listing, err error) {
	seen := make(map[string]bool)
	for _, call := range regexp.MustCompile(`\bscript\(([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(call[1], -1) {
			path := filepath.ToSlash(filepath.Join(filepath.Dir(own), "lua", name[1]+".lua"))
			found, err := whole(root, path)
			if errors.Is(err, fs.ErrNotExist) || seen[path] {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen[path] = true
			list = append(list, found)
		}
	}
	return list, nil
}

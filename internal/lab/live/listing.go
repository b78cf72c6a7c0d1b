package live

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/stockd/stockd"
)

// Listing is a part of the code of a strategy, as it stands in the tree.
type Listing struct {
	// Path is the file, and Line the first of its lines that is shown.
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

const (
	ofStrategies = "internal/service/strategy"
	ofRedis      = "internal/lock/redis"
)

// SourceOf is the file of the tree in which a strategy or a lock is: it has its name, or names it.
func SourceOf(name string) (string, error) {
	own := path.Join(ofStrategies, strings.ReplaceAll(name, "-", "_")+".go")
	if _, err := fs.Stat(stockd.Sources, own); err == nil {
		return own, nil
	}
	for _, folder := range []string{"internal/lock/*", ofStrategies} {
		found, err := firstFile(folder+"/*.go", func(text string) bool {
			return strings.Contains(text, `"`+name+`"`) && strings.Contains(text, "Entry{")
		})
		if err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("no file has an entry of %s: %w", name, fs.ErrNotExist)
}

// firstFile is the first file whose text is the one that is looked for, tests apart.
func firstFile(pattern string, is func(text string) bool) (string, error) {
	paths, err := fs.Glob(stockd.Sources, pattern)
	if err != nil {
		return "", err
	}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		text, err := stockd.Sources.ReadFile(p)
		if err != nil {
			return "", err
		}
		if is(string(text)) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: %w", pattern, fs.ErrNotExist)
}

// listings are the code of a strategy: the file that names it, and what it rests on.
func listings(name string) ([]Listing, error) {
	own, err := SourceOf(name)
	if err != nil {
		return nil, err
	}
	first, err := body(own)
	if err != nil {
		return nil, err
	}
	list := []Listing{first}
	scripts, err := scriptsOf(own, first.Text)
	if err != nil {
		return nil, err
	}
	list = append(list, scripts...)
	for _, b := range bases() {
		if !b.used.MatchString(own + "\n" + first.Text) {
			continue
		}
		for _, f := range b.functions {
			found, err := function(f[0], f[1])
			if err != nil {
				return nil, err
			}
			list = append(list, found)
		}
	}
	return list, nil
}

// base is what strategies rest on whose own file has such words, its path before them: functions by their folders.
type base struct {
	used      *regexp.Regexp
	functions [][2]string
}

func bases() []base {
	const rows = "internal/repo"
	return []base{
		{regexp.MustCompile(`(?s)^internal/lock/redis/.*\.poll\(`), [][2]string{{ofRedis, "base.poll"}}},
		{regexp.MustCompile(`deleteBlindly|redis-setnx`), [][2]string{{ofRedis, "base.deleteBlindly"}}},
		{regexp.MustCompile(`newHashLock`), [][2]string{{ofRedis, "hashLock.Acquire"}}},
		{regexp.MustCompile(`sessionLock`), [][2]string{{"internal/lock/sql", "sessionLock.Acquire"}}},
		{regexp.MustCompile(`newQueue\(`), [][2]string{{"internal/lock/zk", "queue.acquire"}}},
		{regexp.MustCompile(`newConditional\(`), [][2]string{{ofStrategies, "conditional.record"}}},
		{regexp.MustCompile(`SubtractIfEnough`), [][2]string{{rows, "Tx.SubtractIfEnough"}}},
		{regexp.MustCompile(`newGuarded\(|lock\.Entry`), [][2]string{{ofStrategies, "guarded.hold"}}},
		{regexp.MustCompile(`readCheckWrite\(|process\.New\(\)|lock\.Entry|unguarded\{`), [][2]string{
			{ofStrategies, "readCheckWrite"}, {ofStrategies, "setStock"}, {rows, "Tx.SetStock"},
		}},
	}
}

// scriptsOf are the scripts that the text of a Go file makes, or that its strategy calls elsewhere.
func scriptsOf(own, text string) (list []Listing, err error) {
	switch path.Base(own) {
	case "redis_stock.go":
		script, err := firstFile("internal/service/*/lua/*_sell.lua", func(string) bool { return true })
		if err != nil {
			return nil, err
		}
		whole, err := wholeFile(script)
		return []Listing{whole}, err
	case "sql_procedure.go":
		procedure, err := procedure()
		return []Listing{procedure}, err
	}
	seen := make(map[string]bool)
	for _, call := range regexp.MustCompile(`\bscript\(([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(call[1], -1) {
			script := path.Join(path.Dir(own), "lua", name[1]+".lua")
			found, err := wholeFile(script)
			if errors.Is(err, fs.ErrNotExist) || seen[script] {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen[script] = true
			list = append(list, found)
		}
	}
	return list, nil
}

// procedure is the statement of the migrations that creates the procedure of a sale.
func procedure() (Listing, error) {
	const begin = "CREATE PROCEDURE"
	file, err := firstFile("migrations/mysql/*.sql", func(text string) bool { return strings.Contains(text, begin) })
	if err != nil {
		return Listing{}, err
	}
	all, err := wholeFile(file)
	before, rest, _ := strings.Cut(all.Text, begin)
	statement, _, _ := strings.Cut(rest, "-- +goose StatementEnd")
	return Listing{Path: file, Line: 1 + strings.Count(before, "\n"), Text: begin + statement}, err
}

func wholeFile(file string) (Listing, error) {
	content, err := stockd.Sources.ReadFile(file)
	return Listing{Path: file, Line: 1, Text: string(content)}, err
}

// body is a file without its imports.
func body(file string) (Listing, error) {
	whole, err := wholeFile(file)
	if err != nil {
		return Listing{}, err
	}
	at := regexp.MustCompile(`(?m)^(package .*|import \((?s:.*?)^\)|import .*)\n\n`).FindAllStringIndex(whole.Text, 2)
	if len(at) == 0 {
		return Listing{}, fmt.Errorf("%s declares nothing", file)
	}
	return whole.from(at[len(at)-1][1], len(whole.Text)), nil
}

// from is a part of a listing.
func (l Listing) from(from, to int) Listing {
	return Listing{Path: l.Path, Line: l.Line + strings.Count(l.Text[:from], "\n"), Text: l.Text[from:to]}
}

// function finds a function of a folder with its comment, a method as type.name.
func function(folder, name string) (Listing, error) {
	declared := declaration(name)
	file, err := firstFile(folder+"/*.go", declared.MatchString)
	if err != nil {
		return Listing{}, fmt.Errorf("find %s: %w", name, err)
	}
	whole, err := wholeFile(file)
	at := declared.FindStringIndex(whole.Text)
	return whole.from(at[0], at[1]), err
}

// declaration finds a function with its comment. The brace that ends it is the first one at the begin of a line.
func declaration(name string) *regexp.Regexp {
	of, method, isMethod := strings.Cut(name, ".")
	head := name
	if isMethod {
		head = `\((\w+ )?\*?` + of + `\) ` + method
	}
	return regexp.MustCompile(`(?m)^(//.*\n)*func ` + head + `\((.*\}\n|(?s:.*?)^\}\n)`)
}

package live

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
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
	ofRows       = "internal/repo"
)

// SourceOf is the file of the tree in which a strategy or a lock is: it has its name, or names it.
func SourceOf(name string) (string, error) {
	own := path.Join(ofStrategies, strings.ReplaceAll(name, "-", "_")+".go")
	if _, err := fs.Stat(stockd.Sources, own); err == nil {
		return own, nil
	}
	entry := regexp.MustCompile(fmt.Sprintf(`(?s)(%[1]q.*Entry\{|Entry\{.*%[1]q)`, name))
	for _, folder := range []string{"internal/lock/*", ofStrategies} {
		if found, err := excerpt(folder+"/*.go", entry); err == nil {
			return found.Path, nil
		}
	}
	return "", fmt.Errorf("no file has an entry of %s: %w", name, fs.ErrNotExist)
}

// excerpt is the first group that an expression finds in the first file of a pattern, tests apart.
func excerpt(pattern string, wanted *regexp.Regexp) (Listing, error) {
	paths, err := fs.Glob(stockd.Sources, pattern)
	if err != nil {
		return Listing{}, err
	}
	for _, p := range paths {
		content, err := stockd.Sources.ReadFile(p)
		if err != nil {
			return Listing{}, err
		}
		if at := wanted.FindSubmatchIndex(content); at != nil && !strings.HasSuffix(p, "_test.go") {
			return Listing{Path: p, Line: 1 + bytes.Count(content[:at[2]], []byte("\n")), Text: string(content[at[2]:at[3]])}, nil
		}
	}
	return Listing{}, fmt.Errorf("find %s in %s: %w", wanted, pattern, fs.ErrNotExist)
}

// listings are the code of a strategy: the file that names it without its imports, its scripts, and what it rests on.
func listings(name string) ([]Listing, error) {
	own, err := SourceOf(name)
	if err != nil {
		return nil, err
	}
	first, err := excerpt(own, regexp.MustCompile(`(?ms)^package [^\n]*\n\n(?:import (?:\(.*?^\)|[^\n]*)\n\n)?(.*)`))
	if err != nil {
		return nil, err
	}
	list := []Listing{first}
	for _, call := range regexp.MustCompile(`\bscript\(([^)]*)\)`).FindAllStringSubmatch(first.Text, -1) {
		for _, script := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(call[1], -1) {
			found, err := excerpt(path.Join(path.Dir(own), "lua", script[1]+".lua"), everything())
			if errors.Is(err, fs.ErrNotExist) || slices.Contains(list, found) {
				continue
			}
			if err != nil {
				return nil, err
			}
			list = append(list, found)
		}
	}
	for _, b := range bases() {
		if !regexp.MustCompile(b.used).MatchString(own + "\n" + first.Text) {
			continue
		}
		found, err := excerpt(b.files, b.part)
		if err != nil {
			return nil, err
		}
		list = append(list, found)
	}
	return list, nil
}

// base is what strategies rest on whose own file has such words, its path before them: a part of other files.
type base struct {
	used  string
	files string
	part  *regexp.Regexp
}

func bases() []base {
	const direct = `readCheckWrite\(|process\.New\(\)|lock\.Entry|unguarded\{`
	return []base{
		{`/redis_stock\.go\n`, "internal/service/*/lua/*_sell.lua", everything()},
		{`/sql_procedure\.go\n`, "migrations/mysql/*.sql", regexp.MustCompile(`(?s)(CREATE PROCEDURE.*?)-- \+goose StatementEnd`)},
		{`(?s)^internal/lock/redis/.*\.poll\(`, ofRedis + "/*.go", function("base.poll")},
		{`deleteBlindly|redis-setnx`, ofRedis + "/*.go", function("base.deleteBlindly")},
		{`newHashLock`, ofRedis + "/*.go", function("hashLock.Acquire")},
		{`sessionLock`, "internal/lock/sql/*.go", function("sessionLock.Acquire")},
		{`newQueue\(`, "internal/lock/zk/*.go", function("queue.acquire")},
		{`newConditional\(`, ofStrategies + "/*.go", function("conditional.record")},
		{`SubtractIfEnough`, ofRows + "/*.go", function("Tx.SubtractIfEnough")},
		{`newGuarded\(|lock\.Entry`, ofStrategies + "/*.go", function("guarded.hold")},
		{direct, ofStrategies + "/*.go", function("readCheckWrite")},
		{direct, ofStrategies + "/*.go", function("setStock")},
		{direct, ofRows + "/*.go", function("Tx.SetStock")},
	}
}

func everything() *regexp.Regexp { return regexp.MustCompile(`(?s)(.*)`) }

// function finds a function with its comment, a method as type.name. The brace that ends it is the first one at the begin of
// a line.
func function(name string) *regexp.Regexp {
	of, method, isMethod := strings.Cut(name, ".")
	head := name
	if isMethod {
		head = `\((?:\w+ )?\*?` + of + `\) ` + method
	}
	return regexp.MustCompile(`(?m)(^(?://.*\n)*func ` + head + `\((?:.*\}\n|(?s:.*?)^\}\n))`)
}

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// compared is the code of an experiment's failure and of its remedy. Where both run the same code, there
// is one of them.
type compared struct{ failure, remedy []string }

const (
	selling = "internal/service/strategy/"
	locks   = "internal/lock/"
	rows    = "internal/repo/"
	sources = "internal/lab/sourcelock/"
	steps   = "internal/lab/scenario/step/"
	innodb  = "internal/lab/innodb/"
)

// excerpts are declarations as path#name, or path#type.method, and whole files.
func excerpts() map[string]compared {
	var (
		write       = []string{selling + "read_check_write.go#readCheckWrite", rows + "tx.go#SetStock"}
		naive       = append([]string{selling + "naive.go#unguarded.Deduct"}, write...)
		conditional = []string{selling + "sql_conditional.go#takeIfEnough", rows + "tx.go#SubtractIfEnough", rows + "mysql.go~subtractIfEnough:"}
		mutex       = []string{selling + "mutex.go#mutex", selling + "guarded.go#hold", selling + "guarded.go#workThenRelease"}
		setNX       = []string{locks + "redis/setnx.go#Acquire", locks + "redis/weak.go#deleteBlindly"}
		setNXTTL    = []string{locks + "redis/setnx_ttl.go#Acquire", locks + "redis/weak.go#deleteBlindly"}
		owner       = []string{locks + "redis/setnx_owner.go#Acquire", locks + "redis/setnx_owner.go#lookAndDelete"}
		lua         = []string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}
		reentrant   = []string{locks + "redis/lua/reentrant_acquire.lua", locks + "redis/lua/reentrant_renew.lua", locks + "redis/lua/reentrant_release.lua"}
		redlock     = []string{locks + "redis/redlock.go#Acquire", locks + "redis/redlock.go#voting"}
		fence       = []string{selling + "guarded.go#fenceable.fenced", rows + "fence.go#claimFence", rows + "fence.go#SetStockIfClaimed"}
		sequential  = []string{locks + "zk/sequential.go#lookAhead"}
		nodeCache   = []string{sources + "sourcelock.go#nodeCache.Acquire"}
		insert      = []string{locks + "sql/insert_lock.go#insert", locks + "sql/insert_lock.go#insertRecord"}
		forUpdate   = []string{selling + "sql_for_update.go#takeLocked"}
		optimistic  = []string{selling + "sql_optimistic.go#setStockIfUnchanged"}
		getSet      = []string{sources + "redis.go#stamp.replace", sources + "redis.go#getSet"}
		quorum      = []string{sources + "quorum.go#quorum.Acquire"}
	)
	return map[string]compared{
		"oversell":             {naive, conditional},
		"process-mutex":        {naive, mutex},
		"mutex-per-request":    {[]string{selling + "mutex_per_request.go#mutexPerRequest"}, mutex[:1]},
		"mutex-in-transaction": {[]string{selling + "mutex_in_tx.go#mutexTx.Deduct", selling + "mutex_in_tx.go#within"}, mutex[1:]},
		"three-replicas":       {mutex[:1], insert},
		"holder-crashes":       {setNX, setNXTTL},
		"work-outlasts-ttl":    {setNXTTL, lua},
		"owner-check":          {owner, lua},
		"reentrancy":           {setNX, reentrant[:1]},
		"watchdog":             {owner, reentrant},
		"try-lock":             {failure: []string{selling + "guarded.go#guarded.acquire"}},
		"getset":               {[]string{locks + "redis/getset.go#try", locks + "redis/getset.go#isHeld"}, lua},
		"failover":             {lua, fence},
		"master-restarts":      {failure: redlock},
		"clock-jumps":          {redlock, fence},
		"split-vote":           {[]string{sources + "sourcelock.go#inStep.Acquire"}, redlock},
		"herd":                 {[]string{locks + "zk/herd.go#lookAround"}, sequential},
		"late-watch":           {nodeCache, sequential},
		"paused-holder":        {lua, fence},
		"insert-lock":          {insert, []string{locks + "sql/reaper.go#reap", locks + "sql/reaper.go#free"}},
		"for-update":           {forUpdate, []string{locks + "sql/row_lock.go#takeRow"}},
		"innodb-locks":         {failure: []string{innodb + "innodb.go#Statement.sql", innodb + "fixtures/plain.sql"}},
		"optimistic":           {optimistic, conditional},
		"fairness":             {[]string{locks + "redis/redsync.go#redsyncOne.set"}, []string{locks + "redis/lua/fair_acquire.lua", locks + "redis/lua/fair_release.lua"}},
		"lost-reply":           {failure: []string{selling + "conditional.go#appendThenTake"}},
		"no-lock":              {reentrant, conditional},
		"two-strategies":       {[]string{selling + "read_check_write.go#readCheckWrite"}, []string{selling + "read_check_write.go#whileRowChanges", rows + "tx.go#SetStock"}},
		"get-compare-set":      {[]string{selling + "redis_get_set.go#getSet.take"}, reentrant},
		"timestamp-locks":      {getSet, []string{sources + "redis.go#replaceSame", sources + "redis.go#compareAndSet"}},
		"end-of-waiting":       {nodeCache, sequential},
		"redlock-quorum":       {quorum, redlock},
		"spinning":             {failure: []string{sources + "redis.go#polled.Acquire"}},
		"read-write-lock":      {[]string{sources + "readwrite.go#readersOfNow", sources + "readwrite.go#takeRead", sources + "readwrite.go#takeWrite"}, []string{sources + "readwrite.go#takeAnnounced"}},
		"multi-lock":           {[]string{steps + "basket.go#take"}, []string{locks + "multi.go#Acquire"}},
		"several-nodes":        {[]string{locks + "sql/row_lock.go#takeRow"}, conditional},
		"ensemble-size":        {sequential, []string{locks + "etcd/session.go#put"}},
		"holds":                {[]string{steps + "holds.go#naiveHolds.isHeld", steps + "holds.go#naiveHolds.set", steps + "holds.go#naiveHolds.end"}, []string{rows + "confirm.go#Tx.confirm", rows + "confirm.go#setConfirmed"}},
	}
}

// place is where a page of docs/lab has its experiment's code.
var place = regexp.MustCompile(`(?s)<!-- code: ([a-z-]+) -->\n.*?<!-- end of code -->`)

// fillPages writes the code into the pages of docs/lab, in every language.
func fillPages(root string, save func(path, text string) error) error {
	var pages []string
	for _, pattern := range []string{"docs/lab/[0-9]*.md", "docs/lab/*/[0-9]*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		text, err := fillPage(root, page, string(content))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := save(page, text); err != nil {
			return err
		}
	}
	return nil
}

func fillPage(root, page, text string) (string, error) {
	at := place.FindStringSubmatchIndex(text)
	if at == nil {
		return "", fmt.Errorf("it has no place for code")
	}
	experiment := text[at[2]:at[3]]
	c, ok := excerpts()[experiment]
	if !ok {
		return "", fmt.Errorf("%s has no excerpts", experiment)
	}
	up, err := filepath.Rel(filepath.Dir(page), root)
	if err != nil {
		return "", err
	}
	code, err := besides(root, filepath.ToSlash(up), c)
	if err != nil {
		return "", err
	}
	return text[:at[0]] + "<!-- code: " + experiment + " -->\n" + code + "<!-- end of code -->" + text[at[1]:], nil
}

// besides is the failure's code beside that of the remedy, as a table: of HTML, since a cell of Markdown
// has one line.
func besides(root, up string, c compared) (string, error) {
	failure, err := blocks(root, up, c.failure)
	if err != nil || len(c.remedy) == 0 {
		return failure, err
	}
	remedy, err := blocks(root, up, c.remedy)
	return "<table>\n<tr><th>✗</th><th>✓</th></tr>\n<tr><td valign=\"top\">\n" + failure + "\n</td><td valign=\"top\">\n" + remedy + "\n</td></tr>\n</table>\n", err
}

// blocks are excerpts, each below a link to its file.
func blocks(root, up string, names []string) (string, error) {
	var b strings.Builder
	for _, name := range names {
		part, err := excerpt(root, name)
		if err != nil {
			return "", err
		}
		language := strings.TrimPrefix(filepath.Ext(part.Path), ".")
		fmt.Fprintf(&b, "\n[%s](%s/%s):\n\n```%s\n%s\n```\n", filepath.Base(part.Path), up, part.Path, language, strings.TrimRight(unindented(part.Text), "\n"))
	}
	return b.String(), nil
}

// excerpt finds path#name, path~text, which is the lines from that text to the end of its value, or a file.
func excerpt(root, name string) (listing, error) {
	if path, text, ok := strings.Cut(name, "~"); ok {
		return lines(root, path, text)
	}
	path, declared, ok := strings.Cut(name, "#")
	if !ok {
		return whole(root, path)
	}
	if found, err := value(root, path, declared); err != nil || found.Path != "" {
		return found, err
	}
	return function(root, path, declared)
}

func lines(root, path, from string) (listing, error) {
	all, err := whole(root, path)
	if err != nil {
		return all, err
	}
	before, rest, ok := strings.Cut(all.Text, from)
	end := strings.Index(rest, "`,\n")
	if !ok || end < 0 {
		return all, fmt.Errorf("%s has no %s", path, from)
	}
	return listing{Path: path, Line: 1 + strings.Count(before, "\n"), Text: from + rest[:end+2]}, nil
}

// value is a constant; where there is none, it is empty.
func value(root, path, name string) (listing, error) {
	s, err := parse(root, path)
	if err != nil {
		return listing{}, err
	}
	for _, d := range s.file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == name {
				found := s.from(path, v.Pos(), v.End())
				found.Text = strings.TrimPrefix(found.Text, "const ")
				return found, nil
			}
		}
	}
	return listing{}, nil
}

// unindented takes from each line what the second one begins with, for that of a declaration in a group.
func unindented(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	last := rest[strings.LastIndexByte(rest, '\n')+1:]
	indent := last[:len(last)-len(strings.TrimLeft(last, "\t"))]
	if indent == "" || strings.HasPrefix(first, "\t") {
		return text
	}
	return first + "\n" + strings.ReplaceAll("\n"+rest, "\n"+indent, "\n")[1:]
}

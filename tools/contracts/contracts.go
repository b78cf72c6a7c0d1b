package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// source is what has obligations.
type source struct {
	name      string // by which tests refer to it
	path      string // of its file, from the root
	sentences []*obligation
}

// obligation is one sentence.
type obligation struct {
	text  string
	tests []test
}

// test is what fails where an obligation is broken.
type test struct {
	name string
	path string
}

// collect reads all sources, and the tests that name their sentences.
func collect(root string) ([]*source, error) {
	var sources, documents []*source
	var references []reference
	paths := make(map[string]string)
	err := walk(root, func(path string, content []byte) error {
		switch {
		case strings.HasSuffix(path, "_test.go"), suite(path) != "":
			for _, declared := range declaredTest.FindAllSubmatch(content, -1) {
				paths[string(declared[1])] = path
			}
			found, err := referencesOf(path, content)
			references = append(references, found...)
			return err
		case strings.HasSuffix(path, ".go"):
			found, err := goSources(path, content)
			sources = append(sources, found...)
			return err
		case path == description:
			found, err := apiSources(path, content)
			sources = append(sources, found...)
			return err
		case filepath.Ext(path) == ".md":
			if s := documentSource(path, content); len(s.sentences) > 0 {
				documents = append(documents, s)
			}
		case filepath.Ext(path) == ".template":
			if found := listed(comment.ReplaceAllString(string(content), "")); len(found) > 0 {
				sources = append(sources, &source{name: filepath.Base(path), path: path, sentences: found})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sources = append(sources, documents...)
	slices.SortStableFunc(sources, func(a, b *source) int { return cmp.Compare(a.path, b.path) })
	return sources, errors.Join(findNamed(documents, paths), refer(sources, references))
}

// walk reads the files that may have obligations or tests.
func walk(root string, visit func(path string, content []byte) error) error {
	files := os.DirFS(root)
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != "." && (name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".md", ".yaml", ".template"}, filepath.Ext(name)) {
			return nil
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return visit(path, content)
	})
}

// refer adds each test to the sentence that it names.
func refer(sources []*source, references []reference) error {
	byName := make(map[string]*source)
	for _, s := range sources {
		if other := byName[s.name]; other != nil {
			return fmt.Errorf("%s and %s are both called %s", other.path, s.path, s.name)
		}
		byName[s.name] = s
	}
	var errs []error
	for _, r := range references {
		s := byName[r.source]
		if s == nil {
			errs = append(errs, fmt.Errorf("%s: %s has no obligations", r.test.path, r.source))
			continue
		}
		var begin []*obligation
		for _, o := range s.sentences {
			if strings.HasPrefix(o.text, r.words) {
				begin = append(begin, o)
			}
		}
		if len(begin) != 1 {
			errs = append(errs, fmt.Errorf("%s, %s: %d sentences of %s begin with %q", r.test.path, r.test.name, len(begin), r.source, r.words))
			continue
		}
		if !slices.Contains(begin[0].tests, r.test) {
			begin[0].tests = append(begin[0].tests, r.test)
		}
	}
	return errors.Join(errs...)
}

// problems are the obligations without a test.
func problems(sources []*source) (found []string) {
	for _, s := range sources {
		for _, o := range s.sentences {
			if len(o.tests) == 0 {
				found = append(found, fmt.Sprintf("no test says that it fails where this is broken: %s, %s: %s", s.path, s.name, o.text))
			}
		}
	}
	return found
}

var (
	item     = regexp.MustCompile(`^\s*\d+\.\s+(.*)`)
	sentence = regexp.MustCompile(`[^.]*(?:\.\S[^.]*)*(?:\.|$)`)
	comment  = regexp.MustCompile(`(?m)^\s*# ?`) // of nginx
)

// listed are the sentences of the numbered lists that follow "obligations:".
func listed(text string) (found []*obligation) {
	var one string
	end := func() {
		found = append(found, split(one)...)
		one = ""
	}
	inList := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch start := item.FindStringSubmatch(line); {
		case strings.HasSuffix(line, "bligations:"):
			inList = true
		case !inList || line == "":
		case start != nil:
			end()
			one = start[1]
		case strings.HasPrefix(line, " ") && one != "":
			one += " " + strings.TrimSpace(line)
		default:
			end()
			inList = false
		}
	}
	end()
	return found
}

// split splits a text. A dot within a name ends none.
func split(text string) (found []*obligation) {
	for _, one := range sentence.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
		if one = strings.TrimSpace(one); one != "" {
			found = append(found, &obligation{text: one})
		}
	}
	return found
}

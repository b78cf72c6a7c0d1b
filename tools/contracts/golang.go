package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// members marks a type each of whose methods or fields is described by obligations alone.
const members = "//contract:members"

// goSources are the obligations in the comments of a Go file.
func goSources(path string, content []byte) (found []*source, err error) {
	if !strings.Contains(string(content), "bligations:") && !strings.Contains(string(content), members) {
		return nil, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(name string, stated []*obligation) {
		if len(stated) > 0 {
			found = append(found, &source{name: strings.TrimSuffix(file.Name.Name+"."+name, "."), path: path, sentences: stated})
		}
	}
	add("", listed(file.Doc.Text()))
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			add(functionName(d), listed(d.Doc.Text()))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					add(t.Name.Name, typeSentences(t, d.Doc))
				}
			}
		}
	}
	return found, nil
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
	return receiver + "." + f.Name.Name
}

// typeSentences are the obligations of a type and, where it is marked so, of its members.
func typeSentences(t *ast.TypeSpec, outer *ast.CommentGroup) (found []*obligation) {
	doc := cmp.Or(t.Doc, outer)
	found = listed(doc.Text())
	if !marked(doc, members) {
		return found
	}
	var fields *ast.FieldList
	switch of := t.Type.(type) {
	case *ast.InterfaceType:
		fields = of.Methods
	case *ast.StructType:
		fields = of.Fields
	default:
		return found
	}
	for _, field := range fields.List {
		found = append(found, split(field.Doc.Text())...)
	}
	return found
}

func marked(doc *ast.CommentGroup, mark string) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return c.Text == mark })
}

// reference is a test that says which sentence it holds.
type reference struct {
	source, words string
	test          test
}

var directive = regexp.MustCompile(`^//contract:(\S+) (.+)$`)

// suite is the package of a suite that has its tests outside of _test.go files.
func suite(file string) string {
	for _, name := range []string{"locktest", "strategytest"} {
		if path.Dir(file) == "pkg/"+name {
			return name
		}
	}
	return ""
}

// referencesOf are the directives of a file of tests, each with the function that it stands
// above or in.
func referencesOf(path string, content []byte) (references []reference, err error) {
	if !strings.Contains(string(content), "//contract:") {
		return nil, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if words := directive.FindStringSubmatch(c.Text); words != nil {
				references = append(references, reference{words[1], words[2], test{holder(file, c), path}})
			}
		}
	}
	return references, assertTests(path, content, references)
}

var (
	tested = regexp.MustCompile(`^(Test|Fuzz|Example)`)
	proof  = regexp.MustCompile(`(?m)^//go:build prove`)
)

// assertTests requires that make test runs what is said to hold a sentence.
func assertTests(path string, content []byte, references []reference) error {
	for _, r := range references {
		switch {
		case r.test.name == "", suite(path) == "" && !tested.MatchString(r.test.name):
			return fmt.Errorf("%s: contract:%s %s stands at no test", path, r.source, r.words)
		case proof.Match(content):
			return fmt.Errorf("%s: %s holds %s %s, and make test does not run it", path, r.test.name, r.source, r.words)
		}
	}
	return nil
}

// holder is the function that a comment stands above or in; "" where there is none.
func holder(file *ast.File, c *ast.Comment) string {
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok {
			continue
		}
		begin := f.Pos()
		if f.Doc != nil {
			begin = f.Doc.Pos()
		}
		if begin <= c.Pos() && c.Pos() < f.End() {
			return f.Name.Name
		}
	}
	return ""
}

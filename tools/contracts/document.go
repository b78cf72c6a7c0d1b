package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	block    = regexp.MustCompile(`(?s)<!-- obligations -->\n(.*?)<!-- end of obligations -->`)
	entryOf  = regexp.MustCompile(`(?m)^(?:- |\d+\. |$)`)
	link     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	testName = regexp.MustCompile("`(Test\\w+)`")
)

// documentSource is what a document promises between the comments <!-- obligations --> and
// <!-- end of obligations -->. A sentence there may name its tests itself.
func documentSource(path string, content []byte) *source {
	s := &source{name: strings.TrimSuffix(path, ".md"), path: path}
	for _, marked := range block.FindAllStringSubmatch(string(content), -1) {
		for _, paragraph := range entryOf.Split(marked[1], -1) {
			text := strings.ReplaceAll(link.ReplaceAllString(paragraph, "$1"), "**", "")
			s.sentences = append(s.sentences, split(text)...)
		}
	}
	return s
}

var declaredTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// findNamed adds to the sentences of documents the tests that they name.
func findNamed(documents []*source, paths map[string]string) error {
	for _, s := range documents {
		for _, o := range s.sentences {
			for _, named := range testName.FindAllStringSubmatch(o.text, -1) {
				path := paths[named[1]]
				if path == "" {
					return fmt.Errorf("%s: there is no %s", s.path, named[1])
				}
				o.tests = append(o.tests, test{named[1], path})
			}
		}
	}
	return nil
}

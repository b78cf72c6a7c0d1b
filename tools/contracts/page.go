package main

import (
	"fmt"
	"strings"
)

const head = `# Contracts

What stockd promises, sentence by sentence, and beside each the tests that fail where it is broken. ` + "`go run ./tools/contracts`" + ` writes
this page from the sentences in the sources and the tests that name them; a test fails where it is stale. To change an obligation,
change its sentence, then the tests that it has here. [CONTRIBUTING.md](../CONTRIBUTING.md#obligations) says how both are marked.
`

// render is the page.
func render(sources []*source) string {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range sources {
		fmt.Fprintf(&b, "\n## %s\n\n[%s](../%s)\n\n| obligation | held by |\n| --- | --- |\n", s.name, s.path, s.path)
		for _, o := range s.sentences {
			held := make([]string, len(o.tests))
			for i, t := range o.tests {
				held[i] = fmt.Sprintf("[%s](../%s)", t.title(), t.path)
			}
			fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(o.text, "|", `\|`), strings.Join(held, "<br>"))
		}
	}
	return b.String()
}

// title is how -run finds the test: of a suite, the last part of its path.
func (t test) title() string {
	if suite(t.path) == "" {
		return t.name
	}
	return suite(t.path) + " / " + strings.ToUpper(t.name[:1]) + t.name[1:]
}

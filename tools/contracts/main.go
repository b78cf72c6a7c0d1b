// Command contracts writes docs/contracts.md: the obligations of stockd, sentence by
// sentence, and beside each the tests that fail where it is broken. CONTRIBUTING.md says how
// both are marked.
package main

import (
	"fmt"
	"os"
)

// page is the document, from the root of the repository.
const page = "docs/contracts.md"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "contracts:", err)
		os.Exit(1)
	}
}

func run() error {
	sources, err := collect(".")
	if err != nil {
		return err
	}
	for _, problem := range problems(sources) {
		fmt.Fprintln(os.Stderr, "contracts:", problem)
	}
	return os.WriteFile(page, []byte(render(sources)), 0o644)
}

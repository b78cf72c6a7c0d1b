package cmdtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/should"
)

// Helps checks the help of every command that is shown: what it does in a line, examples that it
// takes, and the exit statuses.
func Helps(t *testing.T, root *cobra.Command, help func(args ...string) string) {
	t.Helper()
	for _, cmd := range shown(root) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.Short == "" || strings.ContainsAny(cmd.Short, "\n.") {
				t.Errorf("%q does not say in one line what it does", cmd.Short)
			}
			examples := strings.Split(cmd.Example, "\n")
			if len(examples) < 2 {
				t.Errorf("it shows %d examples", len(examples))
			}
			for _, line := range examples {
				isTaken(t, root, cmd, line)
			}
			text := help(append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
			should.Contain(t, text, cmd.Example, "Exit status: 0 ", "; 1 ", "; 2 ")
		})
	}
}

// shown is every command below one that its help lists.
func shown(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			all = append(append(all, c), shown(c)...)
		}
	}
	return all
}

// isTaken checks that an example is a command line of a command, or of one below it.
func isTaken(t *testing.T, root, cmd *cobra.Command, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, "#")
	commands := 0
	for part := range strings.SplitSeq(line, "&&") {
		words := strings.Fields(strings.NewReplacer("|", " | ", ">", " | ").Replace(part))
		if end := slices.Index(words, "|"); end >= 0 {
			words = words[:end]
		}
		found, args, err := root.Find(words[1:])
		if err != nil || words[0] != root.Name() {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if found == cmd || found.Parent() == cmd {
			commands++
		}
		if err := found.ParseFlags(args); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if err := found.ValidateArgs(found.Flags().Args()); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if commands == 0 {
		t.Errorf("%q is no example of %s", line, cmd.CommandPath())
	}
}

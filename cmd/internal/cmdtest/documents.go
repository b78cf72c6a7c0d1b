package cmdtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/must"
)

// Repository is where the repository is, from the folder of a program.
const Repository = "../.."

// EachDocument reads every document of the repository.
func EachDocument(t *testing.T, test func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(Repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // the repository is ours
		test(strings.TrimPrefix(path, Repository+"/"), string(content))
		return err
	})
	must.Do(t, err)
}

var (
	fenced  = regexp.MustCompile("(?ms)^ {0,3}```[^\n]*\n(.*?)^ {0,3}```[ \t]*$")
	spanned = regexp.MustCompile("`([^`]+)`")
	joined  = regexp.MustCompile(`\\\n\s*`)
	parts   = regexp.MustCompile(`&&|\|\||[|;]|\$\(|\s#\s`)
	name    = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// Code is what a document shows as code: the lines of its blocks, and its spans.
func Code(text string) (lines, spans []string) {
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(joined.ReplaceAllString(block[1], " "), "\n")...)
	}
	rest := fenced.ReplaceAllString(text, "")
	for line := range strings.Lines(joined.ReplaceAllString(rest, " ")) {
		if strings.HasPrefix(line, "    ") {
			lines = append(lines, line)
		}
	}
	for _, span := range spanned.FindAllStringSubmatch(rest, -1) {
		spans = append(spans, strings.ReplaceAll(span[1], "\n", " "))
	}
	return lines, spans
}

// CheckCommands finds every command of a program that a document shows, and its flags, among
// those that the program has. Aliases are other words that a command begins with, such as
// the "demo" of docker compose run demo.
func CheckCommands(t *testing.T, root *cobra.Command, aliases ...string) {
	t.Helper()
	seen := 0
	EachDocument(t, func(path, text string) {
		lines, spans := Code(text)
		for _, line := range append(lines, spans...) {
			for _, part := range parts.Split(line, -1) {
				words := strings.Fields(part)
				if at := arguments(words, root.Name(), aliases); at >= 0 {
					seen++
					checkCommand(t, path, root, words[at:])
				}
			}
		}
	})
	if seen == 0 {
		t.Errorf("no command of %s was seen", root.Name())
	}
}

// arguments is where those of a program begin, or -1.
func arguments(words []string, program string, aliases []string) int {
	if slices.Contains(words, "build") {
		return -1
	}
	if len(words) > 0 && slices.Contains([]string{"etcdctl", "ACL"}, words[0]) {
		return -1 // to them stockd is a user
	}
	for i, word := range slices.Backward(words) {
		if slices.Contains([]string{program, "/" + program, "bin/" + program, "./cmd/" + program}, word) {
			return i + 1
		}
		if slices.Contains(aliases, word) && i > 0 && words[0] == "docker" {
			return i
		}
	}
	return -1
}

func checkCommand(t *testing.T, path string, cmd *cobra.Command, words []string) {
	t.Helper()
	for _, word := range words {
		if flag, ok := strings.CutPrefix(word, "--"); ok {
			flag, _, _ = strings.Cut(flag, "=")
			if flag != "" && flag != "help" && cmd.Flag(flag) == nil {
				t.Errorf("%s: %q has no flag --%s", path, cmd.CommandPath(), flag)
			}
			continue
		}
		if !cmd.HasSubCommands() {
			continue
		}
		if !name.MatchString(word) {
			return // a sentence, or several commands in one
		}
		next, _, err := cmd.Find([]string{word})
		if err != nil || next == cmd {
			t.Errorf("%s: %q has no command %s", path, cmd.CommandPath(), word)
			return
		}
		cmd = next
	}
}

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
)

// EachDocument reads every document of the Repository.
func EachDocument(t *testing.T, test func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(Repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		content, err := os.ReadFile(path)
		test(strings.TrimPrefix(path, Repository+"/"), string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	fenced  = regexp.MustCompile("(?ms)^ {0,3}```[^\n]*\n(.*?)^ {0,3}```[ \t]*$")
	spanned = regexp.MustCompile("`([^`]+)`")
	joined  = regexp.MustCompile(`\\\n\s*`)
	parts   = regexp.MustCompile(`&&|\|\||[|;]|\$\(|\s#\s`)
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

// Repository is the root of the repository, from a folder of a program.
const Repository = "../.."

// CheckDocumentedCommands fails where a document shows a command or a flag that the
// program does not have.
func CheckDocumentedCommands(t *testing.T, root *cobra.Command) {
	t.Helper()
	seen := 0
	EachDocument(t, func(path, text string) {
		lines, spans := Code(text)
		for _, line := range append(lines, spans...) {
			for _, part := range parts.Split(line, -1) {
				words := strings.Fields(part)
				if at := program(words, root.Name()); at >= 0 {
					seen++
					checkCommand(t, path, root, words[at:])
				}
			}
		}
	})
	if seen == 0 {
		t.Error("no command was seen")
	}
}

// program is where the arguments of a program begin, or -1.
func program(words []string, name string) int {
	if slices.Contains(words, "build") {
		return -1
	}
	if len(words) > 0 && slices.Contains([]string{"etcdctl", "ACL"}, words[0]) {
		return -1 // to them stockd is a user
	}
	for i, word := range slices.Backward(words) {
		switch word {
		case name, "/" + name, "bin/" + name, "./cmd/" + name:
			return i + 1
		case "demo": // docker compose run demo
			if i > 0 && words[0] == "docker" && name == "stocklab" {
				return i
			}
		}
	}
	return -1
}

var name = regexp.MustCompile(`^[a-z][a-z-]*$`)

func checkCommand(t *testing.T, path string, cmd *cobra.Command, words []string) {
	t.Helper()
	for _, word := range words {
		if flag, is := strings.CutPrefix(word, "--"); is {
			flag, _, _ = strings.Cut(flag, "=")
			if flag != "" && flag != "help" && cmd.Flags().Lookup(flag) == nil {
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

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/internal/config"
)

const repository = "../.."

// eachDocument reads every document of the repository.
func eachDocument(t *testing.T, test func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		content, err := os.ReadFile(path)
		test(strings.TrimPrefix(path, repository+"/"), string(content))
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

// code is what a document shows as code: the lines of its blocks, and its spans.
func code(text string) (lines, spans []string) {
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

// Every command of stockd that a document shows is one, with these flags.
func TestDocumentedCommandsExist(t *testing.T) {
	seen := 0
	eachDocument(t, func(path, text string) {
		lines, spans := code(text)
		for _, line := range append(lines, spans...) {
			for _, part := range parts.Split(line, -1) {
				words := strings.Fields(part)
				if at := program(words); at >= 0 {
					seen++
					checkCommand(t, path, root(), words[at:])
				}
			}
		}
	})
	if seen == 0 {
		t.Error("no command was seen")
	}
}

// program is where the arguments of stockd begin, or -1.
func program(words []string) int {
	if slices.Contains(words, "build") {
		return -1
	}
	if len(words) > 0 && slices.Contains([]string{"etcdctl", "ACL"}, words[0]) {
		return -1 // to them stockd is a user
	}
	for i, word := range slices.Backward(words) {
		switch word {
		case "stockd", "/stockd", "bin/stockd", "./cmd/stockd":
			return i + 1
		case "demo": // docker compose run demo
			if i > 0 && words[0] == "docker" {
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

// A flag that stands alone is one of some command, or of a program that documents
// speak of.
func TestDocumentedFlagsExist(t *testing.T) {
	known := make(map[string]bool)
	var learn func(*cobra.Command)
	learn = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, sub := range cmd.Commands() {
			learn(sub)
		}
	}
	learn(root())
	flag := regexp.MustCompile(`(?:^| )--([a-z][\w.-]*)`)
	eachDocument(t, func(path, text string) {
		_, spans := code(text)
		for _, span := range spans {
			if !strings.HasPrefix(span, "--") {
				continue
			}
			for _, found := range flag.FindAllStringSubmatch(span, -1) {
				if !known[found[1]] {
					t.Errorf("%s: no command has a flag --%s", path, found[1])
				}
			}
		}
	})
}

// configuredKeys are those of the file that documents all of them, with those of
// groups, and the names of its sections.
func configuredKeys(t *testing.T) (keys, sections map[string]bool) {
	t.Helper()
	var example bytes.Buffer
	if err := config.Example(&example); err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(example.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	keys, sections = make(map[string]bool), make(map[string]bool)
	var learn func(prefix string, group map[string]any)
	learn = func(prefix string, group map[string]any) {
		for name, value := range group {
			keys[prefix+name] = true
			if inner, is := value.(map[string]any); is {
				learn(prefix+name+".", inner)
			}
		}
	}
	learn("", tree)
	for name := range tree {
		sections[name] = true
	}
	return keys, sections
}

// templated are the variables that nginx's templates are filled in with.
func templated(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "nginx/templates/*.template"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no templates of nginx (%v)", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, regexp.MustCompile(`STOCKD_[A-Z_]+`).FindAllString(string(content), -1)...)
	}
	return names
}

// Every key of the configuration that a document names is one, and so is every
// variable.
func TestDocumentedKeysExist(t *testing.T) {
	keys, sections := configuredKeys(t)
	variables := map[string]bool{config.PathEnv: true}
	for key := range keys {
		variables[config.EnvPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = true
	}
	for _, found := range templated(t) {
		variables[found] = true
	}
	key := regexp.MustCompile(`^(([a-z_]+)(?:\.[a-z_]+)+)(?:$|[:= ])`)
	variable := regexp.MustCompile(`\bSTOCKD_[A-Z_]*[A-Z]`)
	eachDocument(t, func(path, text string) {
		_, spans := code(text)
		for _, span := range spans {
			found := key.FindStringSubmatch(span)
			if found != nil && sections[found[2]] && !keys[found[1]] && !slices.Contains([]string{".go", ".template"}, filepath.Ext(found[1])) {
				t.Errorf("%s names the key %s, which there is not", path, found[1])
			}
		}
		for _, found := range variable.FindAllString(text, -1) {
			if !variables[found] {
				t.Errorf("%s names the variable %s, which there is not", path, found)
			}
		}
	})
}

// Every make target that a document shows is one.
func TestDocumentedTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`^make ([a-z]+)`)
	eachDocument(t, func(path, text string) {
		lines, spans := code(text)
		for _, line := range append(lines, spans...) {
			found := target.FindStringSubmatch(strings.TrimSpace(line))
			if found != nil && !strings.Contains(string(makefile), "\n"+found[1]+":") {
				t.Errorf("%s: there is no make %s", path, found[1])
			}
		}
	})
}

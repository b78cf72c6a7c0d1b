package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
)

const repository = cmdtest.Repository

// Every command of stockd that a document shows is one, with these flags.
func TestDocumentedCommandsExist(t *testing.T) { cmdtest.CheckCommands(t, root()) }

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
	for _, of := range flagsOfStocklab(t) {
		known[of] = true
	}
	flag := regexp.MustCompile(`(?:^| )--([a-z][\w.-]*)`)
	cmdtest.EachDocument(t, func(path, text string) {
		_, spans := cmdtest.Code(text)
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

// flagsOfStocklab reads them from its source: a program cannot import another one.
func flagsOfStocklab(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "cmd/stocklab/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("stocklab has no source (%v)", err)
	}
	for _, file := range files {
		content := must.Get(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile(`(?:Var\(&[^,]+, |flags\.Bool\()"([a-z-]+)"`).FindAllStringSubmatch(string(content), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// templated are the variables that nginx's templates are filled in with.
func templated(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "nginx/templates/*.template"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no templates of nginx (%v)", err)
	}
	for _, file := range files {
		content := must.Get(os.ReadFile(file))(t)
		names = append(names, regexp.MustCompile(`STOCKD_[A-Z_]+`).FindAllString(string(content), -1)...)
	}
	return names
}

// Every key of the configuration that a document names is one, and so is every
// variable.
func TestDocumentedKeysExist(t *testing.T) {
	keys, sections := config.Keys(), make(map[string]bool)
	variables := map[string]bool{config.PathEnv: true, "STOCKD_SEED": true, "STOCKD_WALK_FOR": true, "STOCKD_VITESS": true} // the last are for tests
	for _, key := range keys {
		variables[config.EnvPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = true
		section, _, _ := strings.Cut(key, ".")
		sections[section] = true
	}
	isKey := func(name string) bool { // or a group of keys
		return slices.ContainsFunc(keys, func(key string) bool { return key == name || strings.HasPrefix(key, name+".") })
	}
	for _, found := range templated(t) {
		variables[found] = true
	}
	key := regexp.MustCompile(`^(([a-z_]+)(?:\.[a-z_]+)+)(?:$|[:= ])`)
	variable := regexp.MustCompile(`\bSTOCKD_[A-Z_]*[A-Z]`)
	cmdtest.EachDocument(t, func(path, text string) {
		_, spans := cmdtest.Code(text)
		for _, span := range spans {
			found := key.FindStringSubmatch(span)
			if found != nil && sections[found[2]] && !isKey(found[1]) && !slices.Contains([]string{".go", ".template"}, filepath.Ext(found[1])) {
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
	makefile := must.Get(os.ReadFile(filepath.Join(repository, "Makefile")))(t)
	target := regexp.MustCompile(`^make ([a-z]+)`)
	cmdtest.EachDocument(t, func(path, text string) {
		lines, spans := cmdtest.Code(text)
		for _, line := range append(lines, spans...) {
			found := target.FindStringSubmatch(strings.TrimSpace(line))
			if found != nil && !strings.Contains(string(makefile), "\n"+found[1]+":") {
				t.Errorf("%s: there is no make %s", path, found[1])
			}
		}
	})
}

// Package planted keeps bugs that a person could make, a patch each, and proves that tests notice
// them: a suite is worth what it catches. The folder bugs has a file for each room of the tree. Before
// the patch of a bug stands behind "Bug:" its name and what is wrong, behind "Test:" a package and the
// test that turns red, in a line for each, and behind "Needs:" the server without which these tests are
// skipped.
//
// The lines of a patch are looked for in its file first, and then in all others, at first with the
// lines around them and then without: they may move, and their file may have another name. Where
// they are not found, or the result does not compile, plant the bug by hand and put the output of
// "git diff -U1" below those lines. The fewer names are in the changed lines, the longer a patch lasts.
package planted

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/must"
)

const root = "../.."

// A bug is one of a file of the folder bugs.
type bug struct {
	name, needs string
	tests       []string // a package and the name of a test, as in the file
	hunks       []hunk
}

// hunk is one change of a file, with the lines around it and without.
type hunk struct {
	file         string
	around, bare edit
}

// edit is lines and what takes their place.
type edit struct{ old, new string }

func bugs(t *testing.T) (all []bug) {
	t.Helper()
	paths, err := filepath.Glob("bugs/*.patch")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no bug is planted (%v)", err)
	}
	for _, path := range paths {
		content := must.Get(os.ReadFile(path))(t)
		for _, b := range read(string(content)) {
			if len(b.tests) == 0 || len(b.hunks) == 0 {
				t.Fatalf("%s: %s names no test or changes nothing", path, b.name)
			}
			all = append(all, b)
		}
	}
	return all
}

// read reads the bugs of a file.
func read(patches string) (all []bug) {
	file := ""
	for line := range strings.Lines(patches) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if key == "Bug:" {
			name, _, _ := strings.Cut(value, ":")
			all = append(all, bug{name: name})
		}
		if len(all) == 0 {
			continue
		}
		b := &all[len(all)-1]
		switch h := len(b.hunks) - 1; {
		case key == "Test:":
			b.tests = append(b.tests, value)
		case key == "Needs:":
			b.needs = value
		case key == "+++":
			file = strings.TrimPrefix(value, "b/")
		case key == "@@":
			b.hunks = append(b.hunks, hunk{file: file})
		case h < 0 || key == "---" || key == "diff" || key == "index":
		case line[0] == ' ':
			b.hunks[h].around.old += line[1:]
			b.hunks[h].around.new += line[1:]
		case line[0] == '-':
			b.hunks[h].around.old += line[1:]
			b.hunks[h].bare.old += line[1:]
		case line[0] == '+':
			b.hunks[h].around.new += line[1:]
			b.hunks[h].bare.new += line[1:]
		}
	}
	return all
}

// sources are the files of the module without tests and documents, by their paths.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	must.Do(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{".git", "bin", "docs", "planted", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(strings.TrimPrefix(path, root+"/"))] = "\n" + string(content)
		return err
	}))
	return files
}

// plant returns the files that have another content with a bug.
func (b bug) plant(files map[string]string) (changed map[string]string, err error) {
	changed = make(map[string]string)
	for _, h := range b.hunks {
		e, path := h.around, find(files, h.file, h.around.old)
		if path == "" && h.bare.old != "" {
			e, path = h.bare, find(files, h.file, h.bare.old)
		}
		if path == "" {
			return nil, fmt.Errorf("%s: the code does not have these lines once; the comment of this package says what to do\n%s", b.name, h.around.old)
		}
		changed[path] = strings.Replace(cmp.Or(changed[path], files[path]), "\n"+e.old, "\n"+e.new, 1)
	}
	return changed, nil
}

// find is the file that has these lines once: that path, or else the only other one, or none.
func find(files map[string]string, path, lines string) (found string) {
	if strings.Count(files[path], "\n"+lines) == 1 {
		return path
	}
	for other, content := range files {
		if n := strings.Count(content, "\n"+lines); n > 1 || n == 1 && found != "" {
			return ""
		} else if n == 1 {
			found = other
		}
	}
	return found
}

// overlay is the flag that has a build read the files as they are with a bug, also where they are embedded.
func overlay(t *testing.T, b bug, files map[string]string) string {
	t.Helper()
	changed, err := b.plant(files)
	if err != nil {
		t.Fatal(err)
	}
	folder, replace := t.TempDir(), make(map[string]string)
	for path, content := range changed {
		original, failed := filepath.Abs(filepath.Join(root, path))
		replace[original] = filepath.Join(folder, filepath.Base(path))
		err = errors.Join(err, failed, os.WriteFile(replace[original], []byte(content[1:]), 0o600))
	}
	list, failed := json.Marshal(map[string]any{"Replace": replace})
	must.Do(t, errors.Join(err, failed, os.WriteFile(folder+".json", list, 0o600)))
	return "-overlay=" + folder + ".json"
}

// That a bug can be planted, and that there are its tests, is seen at once. To run them takes long, and is
// for make prove.
func TestEveryBugCanBePlanted(t *testing.T) {
	files := sources(t)
	for _, b := range bugs(t) {
		must.Get(b.plant(files))(t)
		for _, test := range b.tests {
			pkg, name, _ := strings.Cut(test, " ")
			name, _, _ = strings.Cut(name, "/")
			if !hasTest(t, pkg, name) {
				t.Errorf("%s: %s has no %s", b.name, pkg, name)
			}
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	paths := must.Get(filepath.Glob(filepath.Join(root, pkg, "*_test.go")))(t)
	return slices.ContainsFunc(paths, func(path string) bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), "\nfunc "+name+"(t *testing.T)")
	})
}

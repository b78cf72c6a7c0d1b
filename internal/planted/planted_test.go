// Package planted keeps bugs that a person could make, a patch each, and proves that tests notice
// them: a suite is worth what it catches. Before its patch, a file in the folder bugs says
//
//	Bug: what is wrong
//	Test: ./internal/stock TestThatTurnsRed (a line for each)
//	Needs: mariadb (where the tests are skipped without it)
//	Base: the commit that the patch was made from
//
// Git merges the patch into the tree as it is now, and follows renamed files. Where it cannot, or
// where the result does not compile, plant the bug into the tree by hand and put the output of
// "git diff" below those lines, and that of "git rev-parse HEAD" behind Base. The fewer names are
// in the changed lines, the longer a patch lasts.
package planted

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// bug is one file of bugs.
type bug struct {
	name, path, base, needs string
	tests                   []string // a package and a pattern, as in the file
}

func bugs(t *testing.T) (all []bug) {
	t.Helper()
	files, err := filepath.Glob("bugs/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bug is planted (%v)", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b := bug{name: strings.TrimSuffix(filepath.Base(file), ".patch"), path: file}
		head, _, _ := strings.Cut(string(content), "\ndiff --git ")
		for line := range strings.Lines(head) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); key {
			case "Test":
				b.tests = append(b.tests, value)
			case "Needs":
				b.needs = value
			case "Base":
				b.base = value
			}
		}
		if len(b.tests) == 0 || b.base == "" {
			t.Fatalf("%s names no test or no base", file)
		}
		all = append(all, b)
	}
	return all
}

// merge writes the files that a patch ($2, made from the commit $1) changes into a folder ($3), as
// they are with the patch in the tree of now, which includes what is not committed.
const merge = `
now=$(git stash create)
export GIT_INDEX_FILE="$3.index"
git read-tree "$1"
git apply --cached "$2"
bug=$(git commit-tree -p "$1" -m bug "$(git write-tree)")
merged=$(git merge-tree --write-tree "${now:-HEAD}" "$bug") || { echo "$merged"; exit 1; }
git diff --name-only --no-renames "${now:-HEAD}" "$merged" | while read -r file; do
	mkdir -p "$3/${file%/*}"
	git cat-file blob "$merged:$file" >"$3/$file"
done`

// overlay is the flag that has a build read the files as they are with a bug, also where they are embedded.
func overlay(t *testing.T, b bug) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "files")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", merge, "sh", b.base, "internal/planted/"+b.path, folder)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not apply (%v); the comment of this package says how to make it again\n%s", b.path, err, out)
	}
	replace := make(map[string]string)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		original, err := filepath.Abs(filepath.Join(root, relative))
		replace[original] = path
		if _, err := os.Stat(original); err != nil { // and go test keeps a result no longer than that file
			return err
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s changes nothing: %v", b.path, err)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder+".json", list, 0o600); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + folder + ".json"
}

// That each patch still applies is seen at once. Its tests take long, and are for make prove.
func TestEveryBugApplies(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "git", "rev-parse", "--git-dir").Run(); err != nil {
		t.Skip("this is no clone of the repository")
	}
	for _, b := range bugs(t) {
		t.Run(b.name, func(t *testing.T) { overlay(t, b) })
	}
}

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

func readSecret(t *testing.T, path string) (content string, mode fs.FileMode) {
	t.Helper()
	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(read)), info.Mode().Perm()
}

func TestSecretsAreRandomAndWrittenOnce(t *testing.T) {
	folder := t.TempDir()
	token, auth, given := filepath.Join(folder, "token"), filepath.Join(folder, "auth"), filepath.Join(folder, "given")
	if err := os.WriteFile(given, []byte("of the admin"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"secrets", token, auth + "=stockd:", given}
	if status, out, errOut := stockd(args...); status != cli.OK || !cmdtest.ContainsAll(out, token+": written", given+": kept") {
		t.Fatalf("exit status %d, %q %q", status, out, errOut)
	}
	if raw, err := os.ReadFile(token); err != nil || strings.TrimSpace(string(raw)) != string(raw) {
		t.Errorf("the token is %q (%v), with blanks around it", raw, err)
	}
	first, mode := readSecret(t, token)
	if len(first) < 26 || mode != ownerReads {
		t.Errorf("the token has %d characters and mode %v", len(first), mode)
	}
	user, password, _ := strings.Cut(func() string { s, _ := readSecret(t, auth); return s }(), ":")
	if user != "stockd" || len(password) < 26 || password == first {
		t.Errorf("the other secret is %q for %q", password, user)
	}
	if content, _ := readSecret(t, given); content != "of the admin" {
		t.Errorf("the file that existed has %q now", content)
	}
	if status, out, _ := stockd(args...); status != cli.OK || strings.Contains(out, "written") {
		t.Errorf("again: exit status %d, %q", status, out)
	}
	if again, _ := readSecret(t, token); again != first {
		t.Error("the second run replaced the token")
	}
}

func TestSecretsOfContainersAreReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if status, _, errOut := stockd("secrets", "--world-readable", path); status != cli.OK {
		t.Fatalf("exit status %d, %q", status, errOut)
	}
	if _, mode := readSecret(t, path); mode != everyoneReads {
		t.Errorf("the mode is %v, want %v", mode, everyoneReads)
	}
}

func TestManyStartsWriteOneSecret(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "token")
	var starts sync.WaitGroup
	contents := make([]string, 8)
	for i := range contents {
		starts.Go(func() {
			if status, _, errOut := stockd("secrets", path); status != cli.OK {
				t.Errorf("exit status %d, %q", status, errOut)
				return
			}
			contents[i], _ = readSecret(t, path)
		})
	}
	starts.Wait()
	if slices.Sort(contents); contents[0] == "" || contents[0] != contents[len(contents)-1] {
		t.Errorf("the starts read %q", contents)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v (%v), want the token alone", left, err)
	}
}

func TestSecretsNameTheFileThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "token")
	if status, _, errOut := stockd("secrets", path); status != cli.Failure || !strings.Contains(errOut, path) {
		t.Errorf("exit status %d, %q", status, errOut)
	}
}

package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unreachable are databases: one that answers something else, and one that does not answer.
func unreachable(t *testing.T) map[string]string {
	t.Helper()
	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	return map[string]string{"away": away.URL, "closed": closed.URL}
}

func TestWhatIsNotCheckedIsSaid(t *testing.T) {
	for name, database := range unreachable(t) {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(&out, database, false); err != nil {
				t.Error(err)
			}
			if !strings.HasPrefix(out.String(), "vuln: not checked: ") || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("it prints %q, want one line that says so", out.String())
			}
			if err := run(&out, database, true); !errors.Is(err, errNotChecked) {
				t.Errorf("required, it returns %v", err)
			}
		})
	}
}

// ci runs .ci/run with a make that prints a line for vuln and fails at a target.
func ci(t *testing.T, line, fails string) (lines []string, ok bool) {
	t.Helper()
	folder := t.TempDir()
	script := "#!/bin/sh\necho make \"$1\"\n[ \"$1\" = vuln ] && echo '" + line + "'\n[ \"$1\" != '" + fails + "' ]\n"
	if err := os.WriteFile(filepath.Join(folder, "make"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "../../.ci/run")
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err == nil
}

func TestCIEndsWithWhatWasNotChecked(t *testing.T) {
	const unchecked = "vuln: not checked: no internet"
	for _, fails := range []string{"", "race", "prove-parts"} {
		lines, ok := ci(t, unchecked, fails)
		if last := lines[len(lines)-1]; last != unchecked || ok != (fails == "") {
			t.Errorf("where %q fails, it ends with %q and ok: %t", fails, last, ok)
		}
	}
	if lines, ok := ci(t, "No vulnerabilities found.", ""); !ok || lines[len(lines)-1] != "make prove-parts" {
		t.Errorf("where all was checked, it prints %q and ok: %t", lines, ok)
	}
	if lines, ok := ci(t, "Vulnerability #1", "vuln"); ok || lines[len(lines)-1] != "Vulnerability #1" {
		t.Errorf("where there is one, it prints %q and ok: %t", lines, ok)
	}
}

func TestAVulnerabilityIsAFailure(t *testing.T) {
	for script, fails := range map[string]bool{"exit 0": false, "exit 3": true} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "go"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", folder)
		if err := run(io.Discard, "file:///copy", false); (err != nil) != fails {
			t.Errorf("%s: %v", script, err)
		}
	}
}

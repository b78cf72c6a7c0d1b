package docs

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// The clients of docs/clients.md send a purchase again, unchanged, whose answer is lost, and then one that gets "busy".
func TestClientsInOtherLanguagesRepeatAPurchase(t *testing.T) {
	page := read(t, "docs/clients.md")
	for language, command := range map[string][]string{"python": {"python3", "buy.py"}, "js": {"node", "buy.js"}, "java": {"java", "Buy.java"}} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(err)
			}
			var lock sync.Mutex
			var sent []string
			shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				lock.Lock()
				defer lock.Unlock()
				sent = append(sent, fmt.Sprint(r.Method, r.URL, r.Header.Get("Idempotency-Key"), string(body), err))
				switch len(sent) {
				case 1:
					panic(http.ErrAbortHandler)
				case 2:
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					fmt.Fprint(w, `{"order_id": "4711"}`) //nolint:errcheck // the client notices
				}
			}))
			defer shop.Close()
			code := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```").FindStringSubmatch(page)[1]
			folder := t.TempDir()
			code = strings.ReplaceAll(code, "http://localhost:8080", shop.URL)
			if err := os.WriteFile(filepath.Join(folder, command[1]), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			run := exec.CommandContext(t.Context(), command[0], command[1])
			run.Dir = folder
			out, err := run.CombinedOutput()
			shop.Close()
			if err != nil || !strings.Contains(string(out), "4711") {
				t.Errorf("%v: %s", err, out)
			}
			if len(sent) != 3 || sent[0] != sent[1] || sent[1] != sent[2] || !strings.Contains(sent[0], "checkout-") {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

package cli

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// write makes a file of the test's.
func write(t *testing.T, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(path, content, 0o600))
	return path
}

// admin is the API as these flags give it.
func admin(t *testing.T, flags ...string) (client.Client, error) {
	t.Helper()
	var a Admin
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	a.AddFlags(set, "http://127.0.0.1:8081")
	must.Do(t, set.Parse(flags))
	return a.Client()
}

// Every call of it has the token, those of the public API included, which the admin API has as well.
func TestEveryCallOfTheAdminAPIHasTheToken(t *testing.T) {
	var asked []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, `{"goods_id": 7}`)
	})
	plain, encrypted := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	encrypted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	encrypted.StartTLS()
	defer plain.Close()
	defer encrypted.Close()
	token := write(t, []byte(" secret\n"))
	authority := write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encrypted.Certificate().Raw}))
	for _, flags := range [][]string{{"--admin-url=" + plain.URL + "/"}, {"--admin-url=" + encrypted.URL, "--ca-file=" + authority}} {
		c := must.Get(admin(t, append(flags, "--token-file="+token)...))(t)
		asked = nil
		must.Get(c.Goods(t.Context(), 7))(t)
		must.Get(c.Restock(t.Context(), 7, 1, ""))(t)
		should.Equal(t, asked, []string{"GET /goods/7 Bearer secret", "POST /goods/7/restock Bearer secret"}, "it is asked for", flags)
	}
	c := must.Get(admin(t, "--admin-url="+encrypted.URL, "--token-file="+token))(t)
	asked, c.Tries = nil, 1
	if _, err := c.Goods(t.Context(), 7); err == nil || len(asked) > 0 {
		t.Errorf("a server of an unknown authority is sent %q (%v)", asked, err)
	}
}

// What stands before the admin API may redirect to another host, which must not get the token.
func TestARedirectGetsNoToken(t *testing.T) {
	asked := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked += r.Method + " " + r.Header.Get("Authorization")
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	c := must.Get(admin(t, "--admin-url="+server.URL, "--token-file="+write(t, []byte("secret"))))(t)
	if _, err := c.Goods(t.Context(), 7); err == nil || !strings.Contains(err.Error(), "302 Found") || asked != "" {
		t.Errorf("the other host is asked for %q (%v)", asked, err)
	}
}

// The server takes the call, and never answers: as long as a full audit may take is waited, and not for ever.
func TestAServerThatHangsHoldsNoCommandForEver(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer server.Close()
	defer close(hang)
	c := must.Get(admin(t, "--admin-url="+server.URL, "--token-file="+write(t, []byte("secret"))))(t)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	defaults := must.Get(config.Load("", flags))(t)
	if limit := c.HTTP.Timeout; limit <= defaults.Audit.Timeout || limit > 5*time.Minute {
		t.Errorf("a call takes up to %s", limit)
	}
	c.HTTP.Timeout = 50 * time.Millisecond
	should.Reject(c.Restock(t.Context(), 7, 1, "key"))(t, client.ErrOutcomeUnknown)
}

func TestTheAdminAPINeedsAToken(t *testing.T) {
	token, blank := write(t, []byte("secret")), write(t, []byte(" \n"))
	if c, err := admin(t, "--token-file="+token); err != nil || c.AdminURL != "http://127.0.0.1:8081" || c.URL != c.AdminURL || c.Token != "secret" {
		t.Errorf("by default it is %+v (%v)", c, err)
	}
	for says, flags := range map[string][]string{
		"--token-file must name a file":        nil,
		"--token-file: ":                       {"--token-file=" + token + ".gone"},
		"--ca-file: ":                          {"--token-file=" + token, "--ca-file=" + token + ".gone"},
		"--token-file: " + blank + " is empty": {"--token-file=" + blank},
	} {
		if _, err := admin(t, flags...); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("with %v: %v, want %q", flags, err, says)
		}
	}
}

// The public API of a shop may be elsewhere, and a redirect leads anywhere.
func TestTheTokenGoesToTheAdminAPIAlone(t *testing.T) {
	got := make(map[string]string)
	serve := func(name, redirect string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got[name+r.URL.Path] = r.Header.Get("Authorization")
			if redirect != "" && r.URL.Path == "/away" {
				http.Redirect(w, r, redirect, http.StatusFound)
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	shop := serve("shop", "")
	owner := serve("owner", shop.URL+"/redirected")
	c := must.Get(admin(t, "--admin-url="+owner.URL, "--token-file="+write(t, []byte("secret"))))(t)
	for _, url := range []string{shop.URL + "/healthz", owner.URL + "/goods/1", owner.URL + "/away"} {
		response := must.Get(c.HTTP.Get(url))(t)
		response.Body.Close() //nolint:errcheck // nothing of it is read
	}
	want := map[string]string{"shop/healthz": "", "owner/goods/1": "Bearer secret", "owner/away": "Bearer secret", "shop/redirected": ""}
	if !maps.Equal(got, want) {
		t.Errorf("they got %q, want %q", got, want)
	}
}

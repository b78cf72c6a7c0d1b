package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// overwrite replaces the content of a file.
func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A write of the admin API and a wrong token leave a line each, which tell whose they are.
func TestTheAdminAPILeavesATrace(t *testing.T) {
	r := startReplica(t)
	restock := r.owners(t, http.MethodPost, "/goods/1/restock?quantity=5", cmdtest.Token)
	restock.Header.Set("X-Request-ID", "request-of-a-restock")
	if got := cmdtest.Do(restock); got.Status != http.StatusOK {
		t.Fatalf("answered with %d %s", got.Status, got.Text)
	}
	if got := cmdtest.Do(r.owners(t, http.MethodPost, "/goods/1/restock?quantity=6", "a-guess-of-a-stranger")); got.Status != http.StatusUnauthorized {
		t.Fatalf("answered with %d %s", got.Status, got.Text)
	}
	for _, parts := range [][]string{
		{"admin write", "request-of-a-restock", "token=owner", "client=127.0.0.1", "/goods/1/restock", `\"quantity\":\"5\"`, `\"stock\":1005`, "status=200"},
		{"wrong admin token", "client=127.0.0.1", "/goods/1/restock"},
	} {
		// A process writes its log beside its answers.
		cmdtest.Await(t, fmt.Sprintf("a line of the log with %q", parts), 10*time.Second, func() bool {
			return slices.ContainsFunc(strings.Split(r.Log.Text(), "\n"), func(line string) bool { return cmdtest.ContainsAll(line, parts...) })
		})
	}
	if r.Log.Contains("a-guess-of-a-stranger") || r.Log.Contains(cmdtest.Token) {
		t.Error("a token is in the log")
	}
}

// Who guesses tokens has ten tries a minute.
func TestTokensCannotBeGuessedFast(t *testing.T) {
	r := startReplica(t)
	looked := 0
	for range 100 {
		switch got := cmdtest.Do(r.owners(t, http.MethodGet, "/goods/1", "a-guess-of-a-stranger")); {
		case got.Status == http.StatusUnauthorized:
			looked++
		case got.Kind != "rate-limited" || got.Header.Get("Retry-After") == "":
			t.Errorf("answered with %d %s", got.Status, got.Text)
		}
	}
	if looked < 10 || looked > 20 { // six seconds bring another one
		t.Errorf("%d of 100 guesses were looked at, want 10", looked)
	}
}

// A page of a stranger whose name resolves to this machine is not served.
func TestTheAdminAPIIsNotRebound(t *testing.T) {
	r := startReplica(t, "--admin-hosts=shop.internal")
	for host, want := range map[string]int{"": http.StatusOK, "localhost": http.StatusOK, "shop.internal": http.StatusOK, "rebound.example": http.StatusMisdirectedRequest} {
		request := r.owners(t, http.MethodGet, "/goods/1", cmdtest.Token)
		request.Host = host
		if got := cmdtest.Do(request); got.Status != want {
			t.Errorf("host %q is answered with %d %s, want %d", host, got.Status, got.Text, want)
		}
	}
}

// Tokens are replaced in their file, and the replica goes on.
func TestTokensAreReplacedWithoutARestart(t *testing.T) {
	const alices, bobs = "0123456789abcdef-alice", "0123456789abcdef-bob"
	file := filepath.Join(t.TempDir(), "tokens")
	overwrite(t, file, "alice "+alices+"\n")
	r := startReplica(t, "--admin-tokens-file="+file)
	status := func(token string) int { return cmdtest.Do(r.owners(t, http.MethodDelete, "/nowhere", token)).Status }
	if got := status(alices); got != http.StatusNotFound {
		t.Fatalf("alice is answered with %d", got)
	}
	overwrite(t, file, "# alice has left\nbob "+bobs+"\n")
	cmdtest.Await(t, "the new tokens", 10*time.Second, func() bool { return r.Log.Contains("admin tokens reloaded") })
	if got := status(bobs); got != http.StatusNotFound {
		t.Errorf("bob is answered with %d", got)
	}
	if got := status(alices); got != http.StatusUnauthorized {
		t.Errorf("alice, who has left, is answered with %d", got)
	}
	overwrite(t, file, "bob\n")
	cmdtest.Await(t, "a warning", 10*time.Second, func() bool { return r.Log.Contains(file + ":1") })
	if got := status(bobs); got != http.StatusNotFound {
		t.Errorf("with a broken file bob is answered with %d", got)
	}
	if !r.Log.Contains("token=bob") || r.Log.Contains(bobs) {
		t.Error("the log lacks bob, or has the token of bob")
	}
}

func TestAWeakTokenIsRefusedWhereOneIsRequired(t *testing.T) {
	database := []string{"--database-driver=sqlite", "--database-dsn=" + filepath.Join(t.TempDir(), "s.db")}
	shipped, err := os.ReadFile("../../secrets/admin_token")
	tokens := []string{"aaaaaaaaaaaaaaaa", "abababababababababab", "please-change-this-token", "an-example-token-for-one-machine"}
	if err == nil { // what is shipped, as long as something is
		tokens = append(tokens, strings.TrimSpace(string(shipped)))
	}
	for _, token := range tokens {
		status, _, errOut := stockd(slices.Concat([]string{"config", "--config", production, "--admin-token=" + token}, database)...)
		if status != cli.Usage || !cmdtest.ContainsAll(errOut, "admin.token", "must") || strings.Contains(errOut, token) {
			t.Errorf("%s ends with status %d, %q; want %d and a rule", token, status, errOut, cli.Usage)
		}
	}
	file := filepath.Join(t.TempDir(), "tokens")
	overwrite(t, file, "alice 0123456789abcdef-alice\nbob aaaaaaaaaaaaaaaa\n")
	status, _, errOut := stockd(slices.Concat([]string{"config", "--config", production, "--admin-tokens-file=" + file}, database)...)
	if status != cli.Usage || !cmdtest.ContainsAll(errOut, "admin.tokens_file", file+":2", "different characters") {
		t.Errorf("a weak token in a file ends with status %d, %q", status, errOut)
	}
}

// Where nothing is required, what is a risk is in the log from the start.
func TestRisksAreInTheLogFromTheStart(t *testing.T) {
	r := startReplicaWith(t, nil, "--admin-token=please-change-this-token", "--http-trusted-proxies=10.0.0.0/8,0.0.0.0/0")
	for _, parts := range [][]string{{"level=WARN", "admin.token", "example"}, {"level=WARN", "http.trusted_proxies", "0.0.0.0/0"}} {
		// A process writes its log beside its answers.
		cmdtest.Await(t, fmt.Sprintf("a line of the log with %q", parts), 10*time.Second, func() bool {
			return slices.ContainsFunc(strings.Split(r.Log.Text(), "\n"), func(line string) bool { return cmdtest.ContainsAll(line, parts...) })
		})
	}
	database := []string{"--database-driver=sqlite", "--database-dsn=" + filepath.Join(t.TempDir(), "s.db"), "--admin-token=" + cmdtest.Token}
	for _, every := range []string{"0.0.0.0/0", "::/0"} {
		status, _, errOut := stockd(slices.Concat([]string{"config", "--config", production, "--http-trusted-proxies=10.0.0.0/8," + every}, database)...)
		if status != cli.Usage || !cmdtest.ContainsAll(errOut, "http.trusted_proxies", every) {
			t.Errorf("where a token is required %s ends with status %d, %q", every, status, errOut)
		}
	}
}

// The admin API speaks TLS, alone or with a look at the certificate of its client, and
// shows a certificate that was replaced to the next connection.
func TestTheAdminAPIOverTLS(t *testing.T) {
	a, err := servers.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, other, clients := certificate(t, a, "first"), certificate(t, a, "second"), certificate(t, a, "admin")
	token := filepath.Join(t.TempDir(), "token")
	overwrite(t, token, cmdtest.Token+"\n")
	r := startReplicaWith(t, nil, "--admin-tls-cert-file="+own.CertFile, "--admin-tls-key-file="+own.KeyFile)
	secure := "https" + strings.TrimPrefix(r.AdminURL, "http")
	if status, out, errOut := stockd("stock", "--goods=1", "--units=7", "--admin-url="+secure, "--token-file="+token, "--ca-file="+a.CAFile); status != cli.OK || !strings.Contains(out, "7 units") {
		t.Errorf("stockd stock ends with status %d, %q, %q", status, out, errOut)
	}
	if status, _, errOut := stockd("stock", "--goods=2", "--units=7", "--admin-url="+secure, "--token-file="+token); status != cli.Failure || !strings.Contains(errOut, "certificate") {
		t.Errorf("without the authority stockd stock ends with status %d, %q", status, errOut)
	}
	if got := cmdtest.Do(r.owners(t, http.MethodGet, "/goods/1", cmdtest.Token)); got.Status == http.StatusOK {
		t.Errorf("without TLS the answer is %d %s", got.Status, got.Text)
	}
	if r.Log.Contains("unencrypted") {
		t.Error("a risk is logged that is none")
	}
	for from, to := range map[string]string{other.CertFile: own.CertFile, other.KeyFile: own.KeyFile} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, to, string(content))
	}
	if got := shown(t, a, secure); got != "second" {
		t.Errorf("after it was replaced the certificate of %q is shown", got)
	}
	wary := startReplicaWith(t, nil, "--admin-tls-cert-file="+own.CertFile, "--admin-tls-key-file="+own.KeyFile, "--admin-tls-client-ca-file="+a.CAFile)
	secure = "https" + strings.TrimPrefix(wary.AdminURL, "http")
	for want, certificates := range map[int][]servers.Certificate{0: nil, http.StatusUnauthorized: {clients}} {
		if got := askOverTLS(t, a, secure+"/goods/1", certificates...); got != want {
			t.Errorf("a client with the certificates %v is answered with %d, want %d", certificates, got, want)
		}
	}
}

func certificate(t *testing.T, a *servers.Authority, name string) servers.Certificate {
	t.Helper()
	c, err := a.Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trusting are the settings of a client that trusts an authority.
func trusting(t *testing.T, a *servers.Authority) *tls.Config {
	t.Helper()
	content, err := os.ReadFile(a.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// shown is the name in the certificate that a server shows.
func shown(t *testing.T, a *servers.Authority, url string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), trusting(t, a)) //nolint:noctx // the test is the only client
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only its certificate was wanted
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// askOverTLS is the status of an answer, or 0 where there was none.
func askOverTLS(t *testing.T, a *servers.Authority, url string, own ...servers.Certificate) int {
	t.Helper()
	c := trusting(t, a)
	for _, o := range own {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = append(c.Certificates, pair)
	}
	response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c}}).Do(cmdtest.Ask(t, http.MethodGet, url))
	if err != nil {
		return 0
	}
	response.Body.Close() //nolint:errcheck // only its status was wanted
	return response.StatusCode
}

package shop

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
)

// answering is a server that answers its nth request with the nth of the answers, and then with the last.
func answering(t *testing.T, asked *[]*http.Request, answers ...string) Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[min(len(*asked), len(answers)-1)]
		*asked = append(*asked, r)
		if name, isReplica := strings.CutPrefix(answer, "replica "); isReplica {
			w.Header().Set(handler.ReplicaHeader, name)
		}
		fmt.Fprint(w, answer) //nolint:errcheck // the test notices
	}))
	t.Cleanup(server.Close)
	return Client{URL: server.URL}
}

// An audit is judged when every accepted unit is in the ledger; what does not say so is asked again.
func TestAnAuditWaitsForWhatIsPending(t *testing.T) {
	const pending, unsaid, settled = `{"sold": 1, "pending": 1}`, `{"sold": 2}`, `{"sold": 3, "pending": 0}`
	var asked []*http.Request
	audit, err := answering(t, &asked, pending, unsaid, settled).Audit(t.Context(), 7)
	if err != nil || audit.Sold != 3 || len(asked) != 3 || asked[0].URL.String() != "/goods/7/audit" {
		t.Errorf("%+v (%v) after %d audits", audit, err, len(asked))
	}
	asked = nil
	if audit, err := answering(t, &asked, pending, settled).AuditNow(t.Context(), 7); err != nil || audit.Sold != 1 || len(asked) != 1 {
		t.Errorf("what is asked for now: %+v (%v) after %d audits", audit, err, len(asked))
	}
	asked = nil
	c := answering(t, &asked, settled)
	c.AdminURL, c.URL = c.URL, "http://127.0.0.1:1"
	if audit, err := c.AuditInFull(t.Context(), 7); err != nil || audit.Sold != 3 || asked[0].URL.String() != "/goods/7/audit?full=true" {
		t.Errorf("the full audit: %+v (%v)", audit, err)
	}
}

func TestAnAuditIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sender := labtest.Repeating(`{"sold": 3, "pending": 1}`)
		audit, err := Client{URL: "http://shop", HTTP: sender}.Audit(t.Context(), 7)
		if took := time.Since(began); err != nil || audit.Sold != 3 || took < pendingWithin || took > pendingWithin+time.Second {
			t.Errorf("%+v (%v) after %s, want the audit as it is after %s", audit, err, took, pendingWithin)
		}
	})
}

// What a replica that cannot answer says is no audit.
func TestAFailureIsNoAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"clean": true, "pending": 0}`) //nolint:errcheck // the test notices
	}))
	defer server.Close()
	if audit, err := (Client{URL: server.URL}).Audit(t.Context(), 7); err == nil || !strings.Contains(err.Error(), "/goods/7/audit: 503 Service Unavailable") {
		t.Errorf("%+v, %v; want 503", audit, err)
	}
}

// The token goes to the admin API alone: also not to a server whose URL only begins as its URL does.
func TestTheTokenGoesToTheAdminAPI(t *testing.T) {
	var asked []*http.Request
	c := answering(t, &asked, `{}`)
	c.Token = "secret"
	for admin, want := range map[string]string{c.URL: "Bearer secret", c.URL[:len(c.URL)-1]: "", "": ""} {
		asked, c.AdminURL = nil, admin
		if _, err := c.Goods(t.Context(), 1); err != nil || asked[0].Header.Get("Authorization") != want {
			t.Errorf("with %q as the admin API %s gets %q (%v), want %q", admin, c.URL, asked[0].Header.Get("Authorization"), err, want)
		}
	}
}

// Replicas that take turns are all found, however unevenly, and one that has no name is none.
func TestReplicasAreFoundBehindABalancer(t *testing.T) {
	late := slices.Concat(slices.Repeat([]string{"replica a"}, replicaNews-1), []string{"replica b"}, slices.Repeat([]string{"replica a"}, replicaNews-2), []string{"replica c", "replica a"})
	for name, c := range map[string]struct {
		answers []string
		want    []string
		asked   int
	}{
		"one":            {[]string{"replica a"}, []string{"a"}, replicaNews},
		"three in turn":  {late, []string{"a", "b", "c"}, 3*replicaNews - 2},
		"one too seldom": {slices.Concat(slices.Repeat([]string{"replica a"}, replicaNews), []string{"replica b"}), []string{"a"}, replicaNews},
	} {
		var asked []*http.Request
		names, err := answering(t, &asked, c.answers...).Replicas(t.Context())
		if err != nil || !slices.Equal(names, c.want) || len(asked) != c.asked {
			t.Errorf("%s: %v (%v) after %d answers, want %v after %d", name, names, err, len(asked), c.want, c.asked)
		}
	}
	var asked []*http.Request
	if _, err := answering(t, &asked, "{}").Replicas(t.Context()); err == nil || !strings.Contains(err.Error(), "is it a stockd?") {
		t.Errorf("a server without a name: %v", err)
	}
}

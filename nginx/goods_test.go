package nginx_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/nginx"
)

// shown is a replica that says of each item how often it was asked for it, and that others may keep that; it knows no tag
// but for those who wait.
func shown(asked *atomic.Int64, keep string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		w.Header().Set("Cache-Control", keep)
		w.Header().Set("ETag", `"known"`)
		w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
		if r.Header.Get("If-None-Match") == `"known"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		time.Sleep(20 * time.Millisecond)
		_, _ = fmt.Fprint(w, n)
	}
}

func look(t *testing.T, address, path, tag, name string) (status int, body string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody))(t)
	r.Header.Set("If-None-Match", tag)
	r.Header.Set("X-Request-ID", name)
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	should.Be(t, strings.Join(response.Header.Values("X-Request-ID"), " "), name, "the names of", path)
	return response.StatusCode, string(must.Get(io.ReadAll(response.Body))(t))
}

// A crowd looks at an item for three seconds.
func TestAPageOfAnItemCostsOneRequestASecond(t *testing.T) {
	const clients, seconds = 200, 3
	var asked, answered atomic.Int64
	address := start(t, nginx.Limits{}, shown(&asked, "public, max-age=1, stale-while-revalidate=1"))
	var crowd sync.WaitGroup
	for i := range clients {
		crowd.Go(func() {
			for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				tag, want := "", http.StatusOK
				if i%2 == 0 {
					tag, want = `"known"`, http.StatusNotModified
				}
				status, body := look(t, address, fmt.Sprintf("/goods/1?page=%d", i), tag, fmt.Sprint("page-", i))
				should.Be(t, status, want, "the status of", body)
				answered.Add(1)
			}
		})
	}
	crowd.Wait()
	if n := asked.Load(); n == 1 || n > seconds+1 || answered.Load() < 2*clients {
		t.Errorf("%d answers in %d s cost %d requests", answered.Load(), seconds, n)
	}
}

// Another path, what a replica allows no cache, and one that waits are for a replica, which gets the tag of the last.
func TestOnlyWhatMayBeKeptIsKept(t *testing.T) {
	var kept, secret atomic.Int64
	allows := start(t, nginx.Limits{}, shown(&kept, "public, max-age=1, stale-while-revalidate=1"))
	before := httptest.NewServer(shown(&secret, "no-store"))
	defer before.Close()
	forbids := startBefore(t, nginx.Limits{}, strings.TrimPrefix(before.URL, "http://"))
	for _, c := range []struct {
		address, path, tag string
		status             int
		asked              *atomic.Int64
	}{
		{allows, "/orders?request_id=k", "", http.StatusOK, &kept},
		{allows, "/goods/1/audit", "", http.StatusOK, &kept},
		{allows, "/goods/2?wait=20s", "", http.StatusOK, &kept},
		{allows, "/goods/2?wait=20s", `"known"`, http.StatusNotModified, &kept},
		{forbids, "/goods/1", "", http.StatusOK, &secret},
	} {
		for range 3 {
			before := c.asked.Load()
			status, _ := look(t, c.address, c.path, c.tag, "one")
			if status != c.status || c.asked.Load() != before+1 {
				t.Errorf("%s with %q is answered with %d, and the replica was asked %d times", c.path, c.tag, status, c.asked.Load()-before)
			}
		}
	}
}

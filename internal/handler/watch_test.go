package handler_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/should"
)

// page is a page of a shop, which knows the tag of its last answer.
type page struct {
	api

	tag string
}

func (p *page) ask(t *testing.T, query string, want int) answer {
	t.Helper()
	r := request(t, http.MethodGet, p.public.URL+"/goods/1"+query, "", "")
	r.Header.Set("If-None-Match", p.tag)
	got := send(t, r)
	should.Be(t, got.status, want, "with the tag … is answered", query, p.tag, got.text)
	p.tag = got.header.Get("ETag")
	return got
}

// The number of units is concealed: a purchase that changes no word changes no tag. The answer may be kept for a second.
func TestAPageIsShownAWordForWhatIsLeft(t *testing.T) {
	p := &page{api: serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })}
	p.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 2}`, http.StatusOK)
	for _, c := range []struct {
		buys int
		want int
		word any
	}{{0, http.StatusOK, "in-stock"}, {1, http.StatusNotModified, nil}, {1, http.StatusOK, "few-left"}, {10, http.StatusOK, "sold-out"}} {
		for range c.buys {
			p.buy(t, "goods_id=1").is(t, "")
		}
		got := p.ask(t, "", c.want)
		should.Be(t, got.body["availability"], c.word, "the answer is", got.text)
		should.Be(t, got.header.Get("Cache-Control"), "public, max-age=1, stale-while-revalidate=1", "of", got.text)
	}
	p.get(t, "/goods/1?wait=21s").names(t, "wait")
}

// It waits for as long as it asks, or until the answer is another one, or the replica is about to stop.
func TestAPageWaitsForAChange(t *testing.T) {
	var stopping atomic.Bool
	p := &page{api: serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal, o.Stopping, o.Timeout = false, stopping.Load, time.Second })}
	waits := func(query string, want int, least, most time.Duration) answer {
		t.Helper()
		began := time.Now()
		got := p.ask(t, query, want)
		if took := time.Since(began); took < least || took > most {
			t.Errorf("%s is answered after %s", query, took)
		}
		return got
	}
	waits("?wait=20s", http.StatusOK, 0, 5*time.Second) // it knows none
	waits("?wait=1500ms", http.StatusNotModified, 1500*time.Millisecond, 10*time.Second)
	time.AfterFunc(time.Second, func() { p.buy(t, "goods_id=1&quantity=10") })
	got := waits("?wait=20s", http.StatusOK, time.Second, 10*time.Second)
	should.Be(t, got.body["availability"], any("sold-out"), "the answer is", got.text)
	should.Be(t, got.header.Get("Cache-Control"), "no-store", "of one that waits")
	p.asAdmin(t, http.MethodPatch, "/goods/1", fmt.Sprintf(`{"ends_at": %q}`, time.Now().Add(2*time.Second).Format(time.RFC3339Nano)), http.StatusOK)
	waits("?wait=20s", http.StatusOK, 0, 10*time.Second) // what is shown has an end now
	got = waits("?wait=20s", http.StatusOK, 0, 10*time.Second)
	should.Be(t, got.body["availability"], any("ended"), "once that has come, the answer is", got.text)
	time.AfterFunc(time.Second, func() { stopping.Store(true) })
	waits("?wait=20s", http.StatusNotModified, time.Second, 10*time.Second)
}

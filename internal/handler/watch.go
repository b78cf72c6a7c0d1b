package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
)

// longestWait bounds ?wait, and so how long a connection is taken by a client that waits.
const longestWait = 20 * time.Second

// watch serves GET /goods/:id of the public API. An answer has a tag; a client that knows it waits for another one, for as
// long as it asks, and then gets 304. All who wait share the looks of the replica, and one that stops lets none wait on.
func (g goods) watch(c *gin.Context, id int64) (_ any, err error) {
	var wait time.Duration
	if text := c.Query("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > longestWait {
			return nil, invalid(fieldError{"wait", fmt.Sprintf("must be a duration up to %s such as 5s, not %s", longestWait, quote(value{text: text}))})
		}
	}
	limit := g.options.Timeout
	if limit > 0 {
		limit += wait
	}
	var body []byte
	var tag string
	tags := c.GetHeader("If-None-Match")
	known := func() bool { return tags == "*" || strings.Contains(tags, tag) } // a balancer that compresses makes them weak
	within(limit, func(c *gin.Context) {
		ctx, end := c.Request.Context(), time.Now().Add(wait)
		body, tag, err = g.tagged(g.now(ctx, id))
		for err == nil && known() && time.Now().Before(end) && !g.options.stopping() {
			body, tag, err = g.tagged(g.options.Inventory.Next(ctx, id, g.options.Reveal))
		}
		extendWrite(c)
	})(c)
	if err != nil {
		return nil, err
	}
	c.Header("ETag", tag)
	if wait > 0 {
		neverStored(c)
	} else if !g.options.Reveal {
		c.Header("Cache-Control", "public, max-age=1, stale-while-revalidate=1")
	}
	if known() {
		c.Status(http.StatusNotModified)
	} else {
		c.Data(http.StatusOK, gin.MIMEJSON+"; charset=utf-8", body)
	}
	return nil, nil
}

func (g goods) now(ctx context.Context, id int64) (service.Item, error) {
	if g.options.Reveal {
		return g.options.Inventory.Item(ctx, id)
	}
	row, err := g.options.Inventory.Goods(ctx, id)
	return service.Item{Goods: row}, err
}

// tagged is an item as it is shown, and a tag of that: the same at every replica, as long as all of it is the same. A clock
// changes by itself, and only what it begins and ends belongs there.
func (g goods) tagged(found service.Item, err error) (body []byte, tag string, _ error) {
	if err != nil {
		return nil, "", err
	}
	body, err = json.Marshal(g.shownRead(found))
	named := body
	if word := found.Availability(); err == nil && !found.Now.IsZero() {
		found.Now = time.Time{}
		named, err = json.Marshal(g.shownRead(found))
		named = append(named, word...)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(named) // it never fails
	return body, fmt.Sprintf(`"%x"`, sum.Sum64()), err
}

package shop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

// Client calls one stockd, or a balancer before several.
type Client struct {
	// URL is of the public API, AdminURL, with its Token, of the admin API.
	URL, AdminURL, Token string
	// HTTP sends the requests; nil is http.DefaultClient.
	HTTP *http.Client
}

// Strategies lists what the stockd can sell through.
func (c Client) Strategies(ctx context.Context) ([]service.Description, error) {
	var list struct{ Strategies []service.Description }
	err := c.call(ctx, http.MethodGet, c.URL+"/strategies", nil, http.StatusOK, &list)
	return list.Strategies, err
}

// Item is an item, and how it is sold where a purchase does not say.
type Item struct {
	stock.Goods
	stock.Choice
}

// Goods reads an item.
func (c Client) Goods(ctx context.Context, goodsID int64) (item Item, err error) {
	return item, c.call(ctx, http.MethodGet, fmt.Sprintf("%s/goods/%d", c.URL, goodsID), nil, http.StatusOK, &item)
}

// The look for replicas behind a balancer that takes turns, or any of them.
const (
	replicaLooks = 192 // at most
	replicaNews  = 48  // so many without news end it
)

// Replicas names the replicas that answer behind the balancer, in the order in
// which they did.
func (c Client) Replicas(ctx context.Context) (names []string, err error) {
	for look, news := 0, 0; look < replicaLooks && look-news < replicaNews; look++ {
		name, err := c.Replica(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names, news = append(names, name), look
		}
	}
	return names, nil
}

// Owner asks the admin API alone, which conceals nothing.
func (c Client) Owner() Client {
	c.URL = c.AdminURL
	return c
}

// Replica names the replica that answers.
func (c Client) Replica(ctx context.Context) (string, error) {
	url := c.URL + "/healthz"
	header, err := c.send(ctx, http.MethodGet, url, nil, http.StatusOK, nil)
	if err != nil {
		return "", fmt.Errorf("%w: is it a stockd?", err)
	}
	name := header.Get(handler.ReplicaHeader)
	if name == "" {
		return "", fmt.Errorf("GET %s: no header %s: is it a stockd? One with http.reveal off does not name itself", url, handler.ReplicaHeader)
	}
	return name, nil
}

// Backends are the servers of a replica that is ready, and the state of each.
func (c Client) Backends(ctx context.Context) ([]service.Backend, error) {
	var ready struct{ Backends []service.Backend }
	err := c.call(ctx, http.MethodGet, c.URL+"/readyz", nil, http.StatusOK, &ready)
	return ready.Backends, err
}

// The wait for a ledger that is written later than its orders are answered.
const (
	pendingWithin = 30 * time.Second
	pendingLook   = 20 * time.Millisecond
)

// Audit reads the audit of an item. While accepted units are pending in the ledger, it
// reads it again, up to half a minute.
func (c Client) Audit(ctx context.Context, goodsID int64) (stock.Audit, error) {
	end := time.Now().Add(pendingWithin)
	for {
		audit, err := c.audit(ctx, goodsID)
		if err != nil || audit.Pending != nil && *audit.Pending == 0 || time.Now().After(end) {
			return audit.Audit, err
		}
		time.Sleep(pendingLook)
	}
}

// AuditNow asks once, whatever is pending.
func (c Client) AuditNow(ctx context.Context, goodsID int64) (stock.Audit, error) {
	audit, err := c.audit(ctx, goodsID)
	return audit.Audit, err
}

func (c Client) audit(ctx context.Context, goodsID int64) (audit service.Audit, err error) {
	return audit, c.call(ctx, http.MethodGet, fmt.Sprintf("%s/goods/%d/audit", c.URL, goodsID), nil, http.StatusOK, &audit)
}

// AuditInFull reads the audit of an item by every row of its ledger, from the admin API.
func (c Client) AuditInFull(ctx context.Context, goodsID int64) (audit stock.Audit, err error) {
	return audit, c.call(ctx, http.MethodGet, fmt.Sprintf("%s/goods/%d/audit?full=true", c.AdminURL, goodsID), nil, http.StatusOK, &audit)
}

// FindOrder looks an order up by its request id. It fails where there is none.
func (c Client) FindOrder(ctx context.Context, requestID string) error {
	return c.call(ctx, http.MethodGet, c.URL+"/orders?request_id="+url.QueryEscape(requestID), nil, http.StatusOK, nil)
}

// CreateGoods creates an item of so many units, and is Create where no more is said.
func (c Client) CreateGoods(ctx context.Context, goodsID, units int64) error {
	return c.Create(ctx, client.NewItem{GoodsID: goodsID, Stock: units})
}

// Create creates an item.
func (c Client) Create(ctx context.Context, item client.NewItem) error {
	return c.call(ctx, http.MethodPost, c.AdminURL+"/goods", item, http.StatusCreated, nil)
}

// Shop is a client as a shop has it.
func (c Client) Shop() client.Client {
	return client.Client{URL: c.URL, AdminURL: c.AdminURL, Token: c.Token, HTTP: c.HTTP}
}

// Ready reports whether it serves.
func (c Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, c.URL+"/readyz", nil, http.StatusOK, nil)
}

// Recall moves the units of an item from the allocations of strategies back into its row.
func (c Client) Recall(ctx context.Context, goodsID int64) (recalled service.RecalledItem, err error) {
	url := fmt.Sprintf("%s/goods/%d/recall", c.AdminURL, goodsID)
	return recalled, c.call(ctx, http.MethodPost, url, struct{}{}, http.StatusOK, &recalled)
}

// SetFault arms a failpoint of a replica.
func (c Client) SetFault(ctx context.Context, fault failpoint.Fault) error {
	body := map[string]any{"do": fault.Do, "goods_id": fault.GoodsID, "strategy": fault.Strategy, "times": max(1, fault.Times)}
	if fault.For != 0 {
		body["for"] = fault.For.String()
	}
	if fault.IgnoreCancel {
		body["deaf"] = true
	}
	return c.call(ctx, http.MethodPost, c.AdminURL+"/lab/faults", body, http.StatusCreated, nil)
}

// Faults lists the failpoints of a replica, and how often each was reached.
func (c Client) Faults(ctx context.Context) ([]failpoint.Fault, error) {
	var list struct{ Faults []failpoint.Fault }
	err := c.call(ctx, http.MethodGet, c.AdminURL+"/lab/faults", nil, http.StatusOK, &list)
	return list.Faults, err
}

// ClearFaults removes the failpoints of a replica, and continues the purchases that it
// holds.
func (c Client) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, c.AdminURL+"/lab/faults", nil, http.StatusNoContent, nil)
}

// Metric is one of the figures that a server has for Prometheus, beside its admin API.
func (c Client) Metric(ctx context.Context, name string) (value float64, err error) {
	var text string
	if err := c.call(ctx, http.MethodGet, c.AdminURL+"/metrics", nil, http.StatusOK, &text); err != nil {
		return 0, err
	}
	return Counter(text, name+" ")
}

// Counter is the number on the line of a text that begins so.
func Counter(text, begin string) (value float64, err error) {
	for line := range strings.Lines(text) {
		if number, found := strings.CutPrefix(line, begin); found {
			return strconv.ParseFloat(strings.TrimSpace(number), 64)
		}
	}
	return 0, fmt.Errorf("no line begins with %q", begin)
}

func (c Client) call(ctx context.Context, method, url string, body any, want int, into any) error {
	_, err := c.send(ctx, method, url, body, want, into)
	return err
}

func (c Client) send(ctx context.Context, method, url string, body any, want int, into any) (http.Header, error) {
	request, err := c.request(ctx, method, url, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	response, err := cmp.Or(c.HTTP, http.DefaultClient).Do(request)
	if err != nil {
		return nil, err // it names method and URL
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	answer, err := io.ReadAll(response.Body)
	switch {
	case err == nil && response.StatusCode != want:
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, bytes.TrimSpace(answer))
	case err == nil && into != nil:
		if text, ok := into.(*string); ok {
			*text = string(answer)
		} else {
			err = json.Unmarshal(answer, into)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return response.Header, nil
}

func (c Client) request(ctx context.Context, method, url string, body any) (*http.Request, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.AdminURL != "" && strings.HasPrefix(url, c.AdminURL+"/") { // no other server may get the token
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return request, nil
}

package main

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/pkg/client"
)

// The public client against a real replica; every exchange is held to the
// description.
func TestThePublicClient(t *testing.T) {
	contract, err := apitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := startReplica(t)
	c := client.Client{URL: r.URL, AdminURL: r.AdminURL, Token: cmdtest.Token, HTTP: &http.Client{Transport: contract.Transport(t)}}
	t.Run("Buys", func(t *testing.T) { clientBuys(t, c) })
	t.Run("Owns", func(t *testing.T) { clientOwns(t, c) })
	t.Run("Finds", func(t *testing.T) { clientFinds(t, c) })
	t.Run("Switches", func(t *testing.T) { clientSwitches(t, c) })
}

func clientBuys(t *testing.T, c client.Client) {
	t.Helper()
	p := client.Purchase{RequestID: "checkout-1", GoodsID: 1, Quantity: 2, UserID: "u-1", Strategy: "mutex", Group: new(true), Durable: client.InSQL}
	for _, replayed := range []bool{false, true} {
		sale, err := c.Deduct(t.Context(), p)
		if err != nil || sale.Replayed != replayed || sale.Remaining != 998 || sale.Quantity != 2 || sale.Strategy != "mutex" ||
			sale.RequestID != "checkout-1" || sale.OrderID == "" || sale.Durable != client.InSQL || sale.Replica == "" {
			t.Errorf("sold %+v (%v), replayed %v", sale, err, replayed)
		}
	}
	fenced, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "sql-insert-lock", Fence: new(true)})
	if err != nil || fenced.Token == 0 || fenced.Quantity != 1 || fenced.RequestID == "" {
		t.Errorf("sold %+v (%v), want a token", fenced, err)
	}
	for _, wrong := range []struct {
		p    client.Purchase
		want error
	}{
		{client.Purchase{GoodsID: 1, Quantity: 1000}, client.ErrSoldOut},
		{client.Purchase{GoodsID: 404}, client.ErrUnknownGoods},
		{client.Purchase{GoodsID: 1, Strategy: "hope"}, client.ErrUnknownStrategy},
		{client.Purchase{GoodsID: 1, Quantity: -1}, client.ErrInvalid},
		{client.Purchase{GoodsID: 1, RequestID: "checkout-1", UserID: "u-1"}, client.ErrKeyReused},
		{client.Purchase{GoodsID: 1, Strategy: "redis-lua"}, client.ErrRefused},
	} {
		_, err := c.Deduct(t.Context(), wrong.p)
		problem, ok := errors.AsType[*client.Problem](err)
		if !errors.Is(err, wrong.want) || !ok || problem.Instance == "" || problem.Status < 400 {
			t.Errorf("%+v is answered with %v, want %v", wrong.p, err, wrong.want)
		}
	}
	goods, err := c.Goods(t.Context(), 1)
	if err != nil || goods.Stock != 997 || goods.Fence != fenced.Token {
		t.Errorf("goods are %+v (%v), want 997", goods, err)
	}
	audit, err := c.Audit(t.Context(), 1)
	if err != nil || !audit.Clean || audit.Sold != 3 || audit.Orders != 2 || audit.Pending == nil {
		t.Errorf("the audit is %+v (%v)", audit, err)
	}
}

// clientFinds asks for the orders of clientBuys.
func clientFinds(t *testing.T, c client.Client) {
	t.Helper()
	found, err := c.OrderOf(t.Context(), client.Purchase{RequestID: "checkout-1", UserID: "u-1"})
	if err != nil || found.Quantity != 2 || found.Remaining != 998 || found.Durable != client.InSQL || time.Since(found.CreatedAt).Abs() > time.Minute {
		t.Errorf("checkout-1 is %+v, %v", found, err)
	}
	same, err := c.Order(t.Context(), found.OrderID)
	if found.UserID = "u-1"; err != nil || same != found {
		t.Errorf("by its number it is %+v (%v), want %+v with its user", same, err, found)
	}
	if _, err := c.OrderOf(t.Context(), client.Purchase{RequestID: "checkout-2"}); !errors.Is(err, client.ErrUnknownOrder) {
		t.Errorf("what was never sent is %v", err)
	}
	var listed []string
	for order, err := range c.Orders(t.Context(), client.Pages{GoodsID: 1, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, order.OrderID)
	}
	if len(listed) != 2 || listed[0] != found.OrderID {
		t.Errorf("listed %v, want two orders and %s first", listed, found.OrderID)
	}
}

func clientOwns(t *testing.T, c client.Client) {
	t.Helper()
	for range 2 { // each happens once
		if goods, err := c.Create(t.Context(), client.NewItem{GoodsID: 11, Stock: 0, RequestID: "create-11"}); err != nil || goods.ID != 11 || goods.Stock != 0 {
			t.Errorf("created without units: %+v (%v)", goods, err)
		}
		if goods, err := c.Create(t.Context(), client.NewItem{GoodsID: 7, Stock: 5, RequestID: "create-7"}); err != nil || goods.ID != 7 || goods.Stock < 5 {
			t.Errorf("created %+v (%v)", goods, err)
		}
		if goods, err := c.Restock(t.Context(), 7, 3, "restock-7"); err != nil || goods.Stock < 5 {
			t.Errorf("restocked to %+v (%v)", goods, err)
		}
	}
	if goods, err := c.Create(t.Context(), client.NewItem{GoodsID: 9, Stock: 5, PerUser: 2}); err != nil || goods.PerUser != 2 || goods.Stock != 5 {
		t.Errorf("created %+v (%v), want 2 for one buyer", goods, err)
	}
	if audit, err := c.AuditInFull(t.Context(), 7); err != nil || audit.Stock != 8 || audit.Initial != 8 {
		t.Errorf("the audit is %+v (%v), want 8 of 8", audit, err)
	}
	if _, err := c.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 1}); !errors.Is(err, client.ErrGoodsExist) {
		t.Errorf("created goods 1 twice: %v", err)
	}
	if _, err := c.Restock(t.Context(), 7, 1_000_000_000_000, ""); !errors.Is(err, client.ErrStockLimit) {
		t.Errorf("restocked beyond all bounds: %v", err)
	}
	c.Token = "another one's token"
	if _, err := c.Create(t.Context(), client.NewItem{GoodsID: 8, Stock: 1}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("created without the token: %v", err)
	}
}

func clientSwitches(t *testing.T, c client.Client) {
	t.Helper()
	if err := c.SwitchOff(t.Context(), "naive", "it oversells"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, Strategy: "naive"}); !errors.Is(err, client.ErrRefused) {
		t.Errorf("a strategy that is off: %v", err)
	}
	list, err := c.Strategies(t.Context())
	naive := slices.IndexFunc(list, func(s client.Strategy) bool { return s.Name == "naive" })
	if err != nil || naive < 0 || list[naive].Enabled || list[naive].Available || list[naive].Note == "" || !list[naive+1].Enabled {
		t.Errorf("described as %+v (%v)", list, err)
	}
	if err := c.SwitchOn(t.Context(), "naive"); err != nil {
		t.Error(err)
	}
	for _, wrong := range []struct{ err, want error }{
		{c.SwitchOff(t.Context(), "sql-conditional", "the default"), client.ErrDefaultStrategy},
		{c.SwitchOff(t.Context(), "hope", "it is none"), client.ErrUnknownStrategy},
		{c.SwitchOff(t.Context(), "naive", ""), client.ErrInvalid},
	} {
		if !errors.Is(wrong.err, wrong.want) {
			t.Errorf("%v, want %v", wrong.err, wrong.want)
		}
	}
}

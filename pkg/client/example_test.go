package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stockd/stockd/pkg/client"
)

// The answer to a purchase is lost on its way. The same purchase under the same RequestID finds out
// what happened, and buys nothing twice.
func ExampleClient_Deduct() {
	ctx := context.Background()
	shop, shut := openShop(3)
	defer shut()
	shop.HTTP = &http.Client{Transport: &losing{lose: true}}

	purchase := client.Purchase{RequestID: "checkout-17", GoodsID: 1, Quantity: 2}
	for range 2 {
		sale, err := shop.Deduct(ctx, purchase)
		if unknown, ok := errors.AsType[*client.UnknownError](err); ok {
			fmt.Println("unknown, ask again as", unknown.RequestID)
			continue
		}
		fmt.Println(sale.Quantity, "units are bought, replayed:", sale.Replayed, err)
	}
	_, err := shop.Deduct(ctx, client.Purchase{GoodsID: 1, Quantity: 2})
	fmt.Println("two more:", errors.Is(err, client.ErrSoldOut))
	// Output:
	// unknown, ask again as checkout-17
	// 2 units are bought, replayed: true <nil>
	// two more: true
}

// Units are held while the buyer pays. One buyer does, and one does not.
func ExampleClient_Reserve() {
	ctx := context.Background()
	shop, shut := openShop(5)
	defer shut()

	paying, err := shop.Reserve(ctx, client.Purchase{GoodsID: 1, Quantity: 2, UserID: "u-17"}, 10*time.Minute)
	fmt.Println(paying.State, paying.Quantity, err)
	leaving, err := shop.Reserve(ctx, client.Purchase{GoodsID: 1, Quantity: 3, UserID: "u-18"}, 10*time.Minute)
	fmt.Println(leaving.State, leaving.Quantity, err)

	paid, err := shop.Confirm(ctx, paying.ReservationID, "payment-4711")
	fmt.Println(paid.State, paid.OrderID != "", err)
	left, err := shop.Release(ctx, leaving.ReservationID)
	fmt.Println(left.State, err)
	item, err := shop.Goods(ctx, 1)
	fmt.Println(item.Stock, "units are left", err)
	// Output:
	// held 2 <nil>
	// held 3 <nil>
	// confirmed true <nil>
	// released <nil>
	// 3 units are left <nil>
}

// A page that shows a word for what is left waits until it is another one.
func ExampleClient_Changed() {
	ctx := context.Background()
	shop, shut := openShop(5)
	defer shut()

	item, err := shop.Goods(ctx, 1)
	fmt.Println(item.Availability, err)
	same, err := shop.Changed(ctx, item, time.Millisecond)
	fmt.Println(same.Availability, err)
	time.AfterFunc(time.Millisecond, func() { _, _ = shop.Deduct(ctx, client.Purchase{GoodsID: 1, Quantity: 5}) })
	item, err = shop.Changed(ctx, item, 20*time.Second)
	fmt.Println(item.Availability, err)
	// Output:
	// few-left <nil>
	// few-left <nil>
	// sold-out <nil>
}

// A worker mails those who wait for an item that was sold out when they came. It needs the feed alone. A real one stores
// step.Cursor after each step, follows, and mails each of them once.
func ExampleClient_Orders() {
	ctx := context.Background()
	shop, shut := openShop(0)
	defer shut()
	waiting := map[int64][]string{1: {"ann@shop.example", "bob@shop.example"}}
	_, err := shop.Correct(ctx, 1, client.Correction{By: 3, Reason: "found in the store"})
	fmt.Println(err)

	adds := []string{client.Restocked, client.StepCorrected, client.StepReturned, client.StepReleased, client.StepExpired}
	for step, err := range shop.Orders(ctx, client.Pages{Kinds: adds}) {
		if err != nil {
			fmt.Println(err)
			break
		}
		if step.Quantity > 0 && step.Remaining > 0 {
			fmt.Println("item", step.GoodsID, "is back in stock:", waiting[step.GoodsID])
			delete(waiting, step.GoodsID)
		}
	}
	// Output:
	// <nil>
	// item 1 is back in stock: [ann@shop.example bob@shop.example]
}

// An item is created with a limit per buyer, restocked once under a key, and audited.
func ExampleClient_Create() {
	ctx := context.Background()
	shop, shut := openShop(1)
	defer shut()

	item, err := shop.Create(ctx, client.NewItem{GoodsID: 7, Stock: 10, PerUser: new(int64(2)), Choice: &client.Choice{Strategy: "sql-bucket"}})
	fmt.Println(item.Stock, "units by", item.Strategy, err)
	for range 2 {
		item, err = shop.Restock(ctx, 7, 5, "delivery-1")
		fmt.Println(item.Stock, "units after the delivery", err)
	}
	_, err = shop.Deduct(ctx, client.Purchase{GoodsID: 7, Quantity: 3, UserID: "u-17"})
	fmt.Println("three for one buyer:", errors.Is(err, client.ErrUserLimit))
	audit, err := shop.AuditInFull(ctx, 7)
	fmt.Println(audit.Initial, "supplied,", audit.Sold, "sold, consistent:", audit.Clean, err)
	// Output:
	// 10 units by sql-bucket <nil>
	// 15 units after the delivery <nil>
	// 15 units after the delivery <nil>
	// three for one buyer: true
	// 15 supplied, 0 sold, consistent: true <nil>
}

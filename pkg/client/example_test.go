package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/stockd/stockd/pkg/client"
)

// A shop's front buys for a user, and tells the failures apart.
func ExampleClient_Deduct() {
	stockd := httptest.NewServer(&stub{answers: []http.HandlerFunc{sold, problem("insufficient-stock", http.StatusConflict, "")}})
	defer stockd.Close()

	c := client.Client{URL: stockd.URL}
	for range 2 {
		sale, err := c.Deduct(context.Background(), client.Purchase{GoodsID: 1, UserID: "u-17"})
		unknown, lost := errors.AsType[*client.UnknownError](err)
		switch {
		case err == nil:
			fmt.Println("order", sale.OrderID, "by", sale.Replica)
		case errors.Is(err, client.ErrSoldOut):
			fmt.Println("sold out")
		case lost:
			fmt.Println("send it again as", unknown.RequestID)
		default:
			fmt.Println("not now:", err)
		}
	}
	// Output:
	// order 7 by r
	// sold out
}

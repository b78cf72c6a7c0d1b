package handler

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/stock"
)

// Baseline returns routes that answer every purchase with the same sale and have no service
// behind them. They measure HTTP alone, the upper bound of every strategy.
func Baseline(o Options) (http.Handler, error) {
	o.Reveal = true
	answer, err := json.Marshal(sold{
		OrderID: "1234567", GoodsID: 1234, Quantity: 1, Remaining: new(int64(499_999_999_999)), Strategy: "sql-conditional", Replica: o.Replica,
		CreatedAt: timestamp(time.UnixMicro(1_700_000_000_123_456)),
		Token:     new(uint64), WaitMS: new(float64), HoldMS: new(float64), Durable: stock.InSQL,
	})
	if err != nil {
		return nil, err
	}
	e := newEngine(o, public)
	e.POST("/deduct", func(c *gin.Context) { c.Data(http.StatusOK, gin.MIMEJSON+"; charset=utf-8", answer) })
	e.GET("/healthz", healthz)
	e.GET("/readyz", healthz)
	return e, nil
}

package handler

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/stock"
)

// Nothing returns routes that answer every purchase with the same sale, and
// nothing behind them: what remains of a replica is its HTTP, which no strategy
// can be faster than.
func Nothing(o Options) (http.Handler, error) {
	o.Reveal = true
	answer, err := json.Marshal(sold{
		OrderID: "1234567", GoodsID: 1234, Quantity: 1, Remaining: new(int64(499_999_999_999)), Strategy: "sql-conditional", Replica: o.Replica,
		CreatedAt: timestamp(time.UnixMicro(1_700_000_000_123_456)),
		Token:     new(uint64), WaitMS: new(float64), HoldMS: new(float64), Durable: stock.InSQL,
	})
	if err != nil {
		return nil, err
	}
	engine := engine(o, public)
	engine.POST("/deduct", func(c *gin.Context) { c.Data(http.StatusOK, gin.MIMEJSON+"; charset=utf-8", answer) })
	engine.GET("/healthz", healthz)
	engine.GET("/readyz", healthz)
	return engine, nil
}

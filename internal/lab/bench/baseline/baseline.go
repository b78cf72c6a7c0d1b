// Package baseline has the programs that the benchmark measures beside stockd: HTTP alone, and two that sell in the few
// lines in which it is often written.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	sqldriver "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// The programs, as the tables call them.
const (
	HTTP   = "HTTP baseline"          // Gin answers each purchase with the same sale
	Update = "Gin and UPDATE"         // GORM: UPDATE … WHERE stock >= 1 and an INSERT, in a transaction
	Script = "Gin and a Redis script" // what it sold is written by one goroutine, out of a queue in memory
)

// Programs are all of them.
func Programs() []string { return []string{HTTP, Update, Script} }

// Command is that of stocklab which runs a program.
func Command(program string) string {
	return map[string]string{HTTP: "baseline", Update: "baseline-update", Script: "baseline-script"}[program]
}

// Lacks says what a program does not do, for the reader of its figures.
func Lacks(program string) string {
	const both = "no keys, so a repeated purchase sells again; no limit per buyer, reservations, audit, deadlines, or word for an unknown outcome"
	if program == Script {
		return both + "; a kill loses the orders of its queue, though they were answered"
	}
	return both
}

// stock is so much that no run sells it.
const stock = 1_000_000_000_000

// goods and order are the tables of both programs, which have no rules but these.
type (
	goods struct{ ID, Stock int64 }
	order struct {
		ID, GoodsID int64
		CreatedAt   time.Time
	}
)

// tables is how the names of a program's tables begin.
func tables(program string) string {
	return map[string]string{Update: "update_", Script: "script_"}[program]
}

// AddGoods adds an item to those of Update.
const AddGoods = "INSERT INTO update_goods (id, stock) VALUES (?, ?)"

// LastOrder asks for the highest number of an order that a program has written.
func LastOrder(program string) string {
	return "SELECT COALESCE(MAX(id), 0) FROM " + tables(program) + "orders"
}

// errSoldOut is what a program answers 409 for.
var errSoldOut = errors.New("sold out")

type sell func(ctx context.Context, goodsID int64) (orderID int64, err error)

// Options say where a program listens, and where the servers are that it sells from.
type Options struct {
	Listen        string
	DSN, Password string
	// Connections are the most to the database.
	Connections int
	Redis       *redis.Options
}

// Run serves one of the programs until ctx ends.
func Run(ctx context.Context, program string, o Options) error {
	sell := func(context.Context, int64) (int64, error) { return 1, nil }
	if program != HTTP {
		db, err := openDatabase(o, tables(program))
		if err != nil {
			return fmt.Errorf("open the database of %s: %w", program, err)
		}
		sell = update(db)
		if program == Script {
			client := redis.NewClient(o.Redis)
			defer client.Close() //nolint:errcheck // nothing is lost with it
			if sell, err = script(ctx, client, db); err != nil {
				return err
			}
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(sell), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // the benchmark waits for no answer then
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func routes(sell sell) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.GET("/readyz", func(c *gin.Context) { c.Status(http.StatusOK) })
	e.POST("/deduct", func(c *gin.Context) {
		goodsID, err := strconv.ParseInt(c.Query("goods_id"), 10, 64)
		if err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"type": "invalid"})
			return
		}
		orderID, err := sell(c.Request.Context(), goodsID)
		switch {
		case errors.Is(err, errSoldOut):
			c.JSON(http.StatusConflict, gin.H{"type": "insufficient-stock"})
		case err != nil:
			c.JSON(http.StatusInternalServerError, gin.H{"type": "internal", "detail": err.Error()})
		default:
			c.JSON(http.StatusOK, gin.H{"order_id": strconv.FormatInt(orderID, 10), "goods_id": goodsID, "quantity": 1})
		}
	})
	return e
}

func openDatabase(o Options, prefix string) (*gorm.DB, error) {
	dsn, err := sqldriver.ParseDSN(o.DSN)
	if err != nil {
		return nil, err
	}
	dsn.Passwd, dsn.ParseTime, dsn.InterpolateParams = o.Password, true, true
	db, err := gorm.Open(mysql.Open(dsn.FormatDSN()), &gorm.Config{Logger: logger.Discard, NamingStrategy: schema.NamingStrategy{TablePrefix: prefix}})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(o.Connections)
	pool.SetMaxIdleConns(o.Connections)
	if err := db.Migrator().DropTable(goods{}, order{}); err != nil {
		return nil, err
	}
	if err := db.AutoMigrate(goods{}, order{}); err != nil {
		return nil, err
	}
	return db, db.Create(&goods{ID: 1, Stock: stock}).Error
}

// update is what the tutorials end with.
func update(db *gorm.DB) sell {
	return func(ctx context.Context, goodsID int64) (int64, error) {
		sold := order{GoodsID: goodsID}
		err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			took := tx.Model(goods{}).Where("id = ? AND stock >= 1", goodsID).Update("stock", gorm.Expr("stock - 1"))
			switch {
			case took.Error != nil:
				return took.Error
			case took.RowsAffected == 0:
				return errSoldOut
			}
			return tx.Create(&sold).Error
		})
		return sold.ID, err
	}
}

// Decrement is the least that a script in Redis has to do.
const Decrement = `local left = tonumber(redis.call('GET', KEYS[1]))
if left < 1 then return -1 end
return redis.call('DECR', KEYS[1])`

// script is what is shown where a database is too slow: it answers once Redis has decremented.
func script(ctx context.Context, client *redis.Client, db *gorm.DB) (sell, error) {
	const key = "baseline:stock:%d"
	if err := client.Set(ctx, fmt.Sprintf(key, 1), stock, 0).Err(); err != nil {
		return nil, fmt.Errorf("set the stock in Redis: %w", err)
	}
	decrement, last, queue := redis.NewScript(Decrement), new(atomic.Int64), make(chan order, 1<<20)
	go write(db, queue)
	return func(ctx context.Context, goodsID int64) (int64, error) {
		left, err := decrement.Run(ctx, client, []string{fmt.Sprintf(key, goodsID)}).Int64()
		switch {
		case err != nil:
			return 0, err
		case left < 0:
			return 0, errSoldOut
		}
		sold := order{ID: last.Add(1), GoodsID: goodsID, CreatedAt: time.Now()}
		queue <- sold
		return sold.ID, nil
	}, nil
}

// write inserts what is queued, up to 500 rows at a time. What cannot be written is lost, as it is in such programs.
func write(db *gorm.DB, queue <-chan order) {
	const most = 500
	for sold := range queue {
		batch := []order{sold}
		for len(batch) < most && len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		_ = db.Create(&batch).Error // the benchmark counts the rows
	}
}

package baseline

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// A program that is compared does what it is compared for: it sells no unit twice, and has an order for each.
func TestAProgramHasAnOrderForEachUnitItSold(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db, _ := labtest.Connect(t, d)
		redis := lab.Redis(t)
		for i, program := range Programs() {
			port := must.Get(servers.FreePort())(t)
			o := Options{
				Listen: servers.Loopback(port), DSN: d.DSN, Password: d.Password, Connections: 8,
				Redis: &goredis.Options{Addr: redis.Address, Username: servers.RedisUser, Password: redis.Password},
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				should.Do(t, Run(ctx, program, o))
			}()
			plan := load.Plan{URL: "http://" + o.Listen, GoodsID: 1, Clients: 1, Requests: 1, Timeout: 10 * time.Second}
			labtest.AwaitAnswer(t, program, 10*time.Second, func() error {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.Listen)
				if err == nil {
					_ = conn.Close() // it was only asked for
				}
				return err
			})
			units := 1000
			if program == Update {
				plan.GoodsID, units = 2, 50
				must.Get(db.Exec(AddGoods, plan.GoodsID, units))(t)
			}
			plan.Clients, plan.Requests = 16, 1000
			got := must.Get(load.Run(t.Context(), plan))(t)
			if got.Sold != units || got.Rejected != plan.Requests-units || i > 0 && got.Duplicates > 0 {
				t.Errorf("%s sold %d of %d units, %d of them twice, and rejected %d: %v", program, got.Sold, units, got.Duplicates, got.Rejected, got.Errors)
			}
			if program != HTTP && !labtest.Eventually(10*time.Second, func() bool {
				var last int
				must.Do(t, db.QueryRow(LastOrder(program)).Scan(&last))
				return last == units
			}) {
				t.Errorf("%s has not written its orders", program)
			}
			stop()
			<-ended
		}
	})
}

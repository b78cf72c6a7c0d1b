package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/stock"
)

// The names of the limits that have no replicas.
const (
	bareLoop = "bare loop of the statements, 64 clients"
	script   = "redis-benchmark of a check-and-decrement script, 64 clients"
)

// httpAlone names the baseline: HTTP without a service.
func httpAlone(clients, replicas int) string {
	return Setting{Kind: baseline.HTTP, Clients: clients, Replicas: replicas}.String()
}

// limits are what no strategy can be faster than. Those that have no replicas
// belong to the stage of one.
func (s *stage) limits() (list []Subject) {
	crowds := s.options.crowds()
	if s.replicas == 1 && !s.options.Quick {
		crowds = append(crowds, hundreds)
	}
	for _, clients := range crowds {
		subject := perSecond(Setting{Kind: baseline.HTTP, Clients: clients, Replicas: s.replicas}, s.program(baseline.HTTP, clients))
		if subject.Kind = ""; clients != usual && clients != hundreds { // figures of it have none
			subject.Rounds = seenOnce
		}
		list = append(list, subject)
	}
	if s.replicas > 1 {
		return list
	}
	for _, how := range s.rivals() {
		list = append(list, perSecond(how, s.program(how.Kind, how.Clients)))
	}
	return append(list,
		Subject{Name: script, Setting: Setting{Clients: usual}, Unit: "/s", Measure: measuring(s.script)},
		Subject{Name: bareLoop, Setting: Setting{Clients: usual}, Unit: "/s", Measure: measuring(s.statements)},
	)
}

// rivals are the programs that sell, by the crowds that a cost is measured with.
func (s *stage) rivals() (list []Setting) {
	for _, program := range []string{baseline.Update, baseline.Script} {
		for _, clients := range s.costed() {
			if s.programs[program] != nil {
				list = append(list, Setting{Kind: program, Clients: clients, Replicas: s.replicas})
			}
		}
	}
	return list
}

// costed are the crowds by which the cost of a sale is measured on one replica.
func (s *stage) costed() []int {
	if s.options.Quick {
		return []int{usual}
	}
	return []int{usual, hundreds}
}

// program measures a program that is no stockd, until it has written what it sold.
func (s *stage) program(name string, clients int) func(*flow.Flow, time.Duration) Sample {
	return func(x *flow.Flow, each time.Duration) Sample {
		plan := load.Plan{URL: s.url(s.programs[name]), GoodsID: 1, Clients: clients, Duration: lasting(clients, each), Timeout: requestLimit}
		return s.run(x, plan, func(result *load.Result) (answered int, err error) {
			if result.Sold != result.Sent {
				return 0, fmt.Errorf("%d of %d requests were not answered: %v", result.Sent-result.Sold, result.Sent, result.Errors)
			}
			return result.Sold, s.written(x, name, result.Sold)
		})
	}
}

// written waits until a program has written so many orders more.
func (s *stage) written(ctx context.Context, program string, sold int) error {
	if program == baseline.HTTP {
		return nil
	}
	s.soldBy[program] += sold
	return settled(ctx, time.Minute, func() (wrong, err error) {
		var last int
		if err := s.bare.QueryRowContext(ctx, baseline.LastOrder(program)).Scan(&last); err != nil {
			return nil, err
		}
		if last < s.soldBy[program] {
			wrong = fmt.Errorf("%s has written %d of its %d orders", program, last, s.soldBy[program])
		}
		return wrong, nil
	})
}

func (s *stage) statements(x *flow.Flow, each time.Duration) Sample {
	if s.bare == nil {
		x.Must(fmt.Errorf("%w: %w", errNotMeasured, errNeedsMySQL))
	}
	goodsID := s.create(x, stock.MaxStock/2)
	_, rate := loop(x, each, 0, slices.Repeat([]turn{func(x *flow.Flow) time.Duration {
		sellBare(x, s.bare, goodsID)
		return 0
	}}, usual))
	return Sample{Value: rate}
}

// script measures the rate of the script with Redis' own program.
func (s *stage) script(x *flow.Flow, each time.Duration) Sample {
	program, err := servers.Find("redis-benchmark")
	switch {
	case s.shop.Servers.Redis == nil || s.shop.Servers.Redis.Started != servers.Local:
		x.Must(fmt.Errorf("%w: it needs a Redis that is a server", errNotMeasured))
	case err != nil:
		x.Must(fmt.Errorf("%w: %w; apt-get install redis-tools brings it", errNotMeasured, err))
	}
	// It takes a password only on its command line, which is public: this one is for the
	// script's own key, and for nothing else.
	const user, key, plenty = "bench", "bench:stock", 1_000_000_000
	password := rand.Text()
	client := s.shop.Servers.Redis.Open()
	defer client.Close() //nolint:errcheck // nothing is lost with it
	sha := flow.Get(client.ScriptLoad(x, baseline.Decrement).Result())(x)
	x.Must(errors.Join(client.Set(x, key, plenty, 0).Err(),
		client.Do(x, "ACL", "SETUSER", user, "reset", "on", ">"+password, "~"+key, "+evalsha", "+get", "+decr").Err()))
	host, port, err := net.SplitHostPort(s.shop.Servers.Redis.Address)
	x.Must(err)
	const about = 80_000 // a second: it counts requests, and not time
	said, err := exec.CommandContext(x, program, "-h", host, "-p", port, "--user", user, "-a", password,
		"-c", strconv.Itoa(usual), "-n", strconv.Itoa(int(about*each.Seconds())), "--csv", "evalsha", sha, "1", key).CombinedOutput()
	if err != nil {
		x.Must(fmt.Errorf("run redis-benchmark: %w: %s", err, said))
	}
	return flow.Get(readCSV(said))(x)
}

// readCSV reads the line of one test: its name, its rate, and latencies: average,
// least, p50, p95, p99 and most.
func readCSV(said []byte) (Sample, error) {
	line := regexp.MustCompile(`(?m)^".*","([0-9.]+)","[0-9.]+","[0-9.]+","([0-9.]+)","[0-9.]+","([0-9.]+)","[0-9.]+"\s*$`).FindSubmatch(said)
	if line == nil {
		return Sample{}, fmt.Errorf("redis-benchmark says %q", said)
	}
	var values [3]float64
	for i := range values {
		var err error
		if values[i], err = strconv.ParseFloat(string(line[i+1]), 64); err != nil {
			return Sample{}, fmt.Errorf("redis-benchmark says %q: %w", said, err)
		}
	}
	return Sample{Value: values[0], P50: values[1], P99: values[2]}, nil
}

// The statements of sql-conditional in a loop, with nothing around them: no service, no GORM, no
// HTTP. It is the limit that the service is held against.
const (
	bareInsert = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at)
		VALUES (?, 'deduct', 1, ?, NULL, 'sql-conditional', 'bare', 0, NULL, ?)`
	bareUpdate = `UPDATE tb_goods_stock SET stock = LAST_INSERT_ID(stock - 1), version = version + 1
		WHERE goods_id = ? AND stock >= 1`
)

// errNeedsMySQL tells that a bare loop on SQLite would say nothing of a
// database that is a server.
var errNeedsMySQL = errors.New("the bare loop needs a MariaDB or MySQL on this machine (--servers=local)")

// openBare connects to a database server itself.
func openBare(x *flow.Flow, d *servers.Database) *sql.DB {
	bare := flow.Get(d.With(func(c *mysql.Config) { c.InterpolateParams, c.ClientFoundRows = true, true }))(x)
	db := flow.Get(bare.Raw())(x)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// connections are as many as a replica has: see database.max_open.
const connections = 16

func sellBare(x *flow.Flow, db *sql.DB, goods int64) {
	id := flow.Get(uuid.NewV7())(x)
	tx := flow.Get(db.BeginTx(x, nil))(x)
	defer tx.Rollback() // harmless after the commit
	flow.Get(tx.ExecContext(x, bareInsert, goods, id.String(), time.Now().UTC()))(x)
	flow.Get(tx.ExecContext(x, bareUpdate, goods))(x)
	x.Must(tx.Commit())
}

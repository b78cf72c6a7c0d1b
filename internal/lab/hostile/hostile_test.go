package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// recorder is a server that keeps what it was sent, byte by byte.
type recorder struct {
	address string

	mu   sync.Mutex
	sent bytes.Buffer
}

func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, `{"type": "urn:stockd:problem:not-found"}`) // the attacker sees what is wrong
	}))
	server.Listener = recordingListener{server.Listener, r}
	server.Config.ReadTimeout = 100 * time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	r.address = strings.TrimPrefix(server.URL, "http://")
	return r
}

type recordingListener struct {
	net.Listener

	recorder *recorder
}

func (l recordingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return recordingConn{conn, l.recorder}, err
}

type recordingConn struct {
	net.Conn

	recorder *recorder
}

func (c recordingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	c.recorder.sent.Write(p[:n])
	return n, err
}

func victim(address string) target {
	return target{
		public: address, admins: []string{address}, hot: hotItem, slow: []int64{100, 101}, strategies: []string{"etcd", "naive"},
		stolen: func(*rand.Rand) (string, string) { return "honest/key", "honest" },
	}
}

// Every attack reaches the server, and a seed makes the same requests again: what is
// sent depends on nothing else.
func TestEveryAttackReachesTheServerAndIsTheSameAgain(t *testing.T) {
	for _, attack := range Attacks() {
		t.Run(attack.Name, func(t *testing.T) {
			t.Parallel()
			var sent [2]string
			for round := range sent {
				server := record(t)
				a := newAttacker(victim(server.address), 15, 7, net.IPv4(127, 0, 2, 1))
				tally := newTally([]Attack{attack})
				tally.add(0, attack.do(t.Context(), a))
				a.close()
				if tally.figures[0].Reached() == 0 {
					t.Fatalf("no server was reached: %+v", tally.figures[0])
				}
				server.mu.Lock()
				sent[round] = strings.ReplaceAll(server.sent.String(), server.address, "shop")
				server.mu.Unlock()
			}
			// What is cut off or dripped differs in where it ends.
			if n := min(len(sent[0]), len(sent[1])); sent[0][:n] != sent[1][:n] {
				t.Errorf("the same seed sent\n%.300q\nand\n%.300q", sent[0], sent[1])
			}
		})
	}
}

// An attack that could not succeed anywhere would show nothing. These servers have no defence against it.
func TestWhatIsDeniedWouldBeServedByAServerWithoutTheDefence(t *testing.T) {
	const token = "the-admin-token"
	for name, serve := range map[string]func(net.Conn){
		"smuggle a request": func(conn net.Conn) { // it takes each purchase that it finds for a request
			text := make([]byte, 4096)
			n, err := conn.Read(text)
			_, purchase, found := strings.Cut(string(text[:n]), "\r\n\r\n")
			purchase = purchase[max(0, strings.Index(purchase, "POST")):]
			request, wrong := http.ReadRequest(bufio.NewReader(strings.NewReader(purchase)))
			if err != nil || !found || wrong != nil || !strings.HasPrefix(request.Header.Get("Idempotency-Key"), smuggledKey) {
				return
			}
			var form struct {
				Item int64 `json:"goods_id"`
			}
			if json.NewDecoder(request.Body).Decode(&form) == nil && slices.Contains([]int64{100, 101}, form.Item) {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") // the attacker sees what it gets
			}
		},
		"rebind the admin API": func(conn net.Conn) { // it looks at the token alone
			request, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil && strings.HasSuffix(strings.Split(request.Host, ":")[0], "evil.example") && request.Header.Get("Authorization") == "Bearer "+token {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer listener.Close() //nolint:errcheck // nothing was written to it
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					serve(conn)
					_ = conn.Close() // the attacker may have closed it
				}
			}()
			open := victim(listener.Addr().String())
			open.adminToken = token
			attacks := Attacks()
			i := slices.IndexFunc(attacks, func(a Attack) bool { return a.Name == name })
			for seed := range uint64(20) {
				a := newAttacker(open, seed, 1, net.IPv4(127, 0, 2, 1))
				tally := newTally(attacks[i : i+1])
				tally.add(0, attacks[i].do(t.Context(), a))
				a.close()
				if tally.figures[0].Statuses["2xx"] == 0 || !attacks[i].Denied {
					t.Errorf("seed %d: it was not served: %+v", seed, tally.figures[0])
				}
			}
		})
	}
}

func TestAConnectionMakesEveryAttackOnce(t *testing.T) {
	attacks := Attacks()
	a := newAttacker(victim("127.0.0.1:1"), 1, 1, net.IPv4(127, 0, 2, 1))
	for number := range 3 {
		plan, made := newSchedule(attacks, number), make([]int, len(attacks))
		for range attacks {
			made[plan.next(a)]++
		}
		if slices.Min(made) != 1 || slices.Max(made) != 1 {
			t.Errorf("connection %d begins with %v", number, made)
		}
		for range 100 * len(attacks) {
			made[plan.next(a)]++
		}
		if slices.Min(made) < 2 {
			t.Errorf("connection %d goes on with %v", number, made)
		}
	}
}

// good is a report of a run in which every bound held.
func good() *Report {
	r := &Report{
		plan:     Plan{Memory: 1 << 20, Timed: true},
		Baseline: Honest{Attempts: 100, P99: 2}, Hostile: Honest{Attempts: 1000, Seconds: 600, P99: 9, Rejected: map[string]int{"busy": 9}},
		Samples: []Sample{{Resident: []int64{1000, 2000}}},
		Ledger:  Ledger{Honest: 9, Audits: []stock.Audit{stock.NewAudit(hotItem, 0, 10, 10, 10)}},
		Pages:   Pages{Asked: 1},
		After:   State{Rows: map[string]int64{"tb_stock_ledger": 11, "lock_token": 64}, Keys: 74},
	}
	for _, attack := range Attacks() {
		f := newTally([]Attack{attack}).figures[0]
		f.add(outcome{end: answered, status: http.StatusNotFound})
		r.Attacks = append(r.Attacks, f)
	}
	return r
}

func indexOf(name string) int {
	return slices.IndexFunc(Attacks(), func(a Attack) bool { return a.Name == name })
}

// Each bound can be broken, and breaks the run.
func TestEveryBoundCanBeBroken(t *testing.T) {
	r := good()
	if r.judge(); len(r.Failed()) > 0 {
		t.Fatalf("a good run fails: %+v", r.Failed())
	}
	sold := stock.NewAudit(2, 0, 5, 5, 5)
	for want, spoil := range map[string]func(*Report){
		"units oversold":                         func(r *Report) { r.Ledger.Audits = []stock.Audit{stock.NewAudit(hotItem, 0, 10, 11, 11), sold} },
		"units lost":                             func(r *Report) { r.Ledger.Audits = []stock.Audit{stock.NewAudit(hotItem, 1, 10, 10, 10), sold} },
		"items whose full audit fails":           func(r *Report) { r.Ledger.Audits[0].Clean = false },
		"units of the hot item left":             func(r *Report) { r.Ledger.Audits = []stock.Audit{stock.NewAudit(hotItem, 1, 10, 9, 9)} },
		"accepted honest orders":                 func(r *Report) { r.Ledger.Honest = 0 },
		"units of the hot item left after":       func(r *Report) { r.Ledger.Audits[0].GoodsID = baselineItem },
		"looks at the stock page and the audit":  func(r *Report) { r.Pages.Asked = 0 },
		"accepted honest orders missing":         func(r *Report) { r.Ledger.Missing = 1 },
		"accepted honest orders twice":           func(r *Report) { r.Ledger.Repeated = 1 },
		"accepted honest orders altered":         func(r *Report) { r.Ledger.Altered = 1 },
		"honest orders that the attacker":        func(r *Report) { r.Ledger.Revealed = 1 },
		"orders that were smuggled in":           func(r *Report) { r.Ledger.Smuggled = 1 },
		"honest p99":                             func(r *Report) { r.Hostile.P99 = 10 },
		"honest requests rejected":               func(r *Report) { r.Hostile.Rejected["busy"] = 11 },
		"honest purchases given up":              func(r *Report) { r.SellOut.Failed = 1 },
		"restocks by the shop":                   func(r *Report) { r.RestockFailures = []string{"busy"} },
		"looks at the stock page":                func(r *Report) { r.Pages.Failed = 1 },
		"replicas that ended":                    func(r *Report) { r.Ended = []string{"replica-1"} },
		"panics":                                 func(r *Report) { r.Log.Panics = 1 },
		"log of all replicas":                    func(r *Report) { r.Log.Bytes = 1<<20 + 1 },
		"largest memory":                         func(r *Report) { r.Samples[0].Resident[1] = 1<<20 + 1 },
		"rows of tb_stock_ledger":                func(r *Report) { r.After.Rows["tb_stock_ledger"] = 12 },
		"rows of lock_token":                     func(r *Report) { r.After.Rows["lock_token"] = 65 },
		"keys in Redis":                          func(r *Report) { r.After.Keys = 75 },
		"state of items that do not exist":       func(r *Report) { r.After.Invented = map[string]int{"rows of lock_token": 1} },
		"answers of an internal error":           func(r *Report) { r.Attacks[0].Problems["internal"] = 1 },
		"answers of an internal":                 func(r *Report) { r.Hostile.Rejected["internal"] = 1 },
		"largest memory of a replica":            func(r *Report) { r.Samples = nil },
		"redirects":                              func(r *Report) { r.Attacks[0].Statuses["3xx"] = 1 },
		"attacks that no server has seen":        func(r *Report) { r.Attacks[0].Ends = map[end]int{unreached: r.Attacks[0].Made} },
		"attacks that were allowed":              func(r *Report) { r.Attacks[indexOf("write without a token")].Statuses["2xx"] = 1 },
		"attacks with an answer that is too":     func(r *Report) { r.Attacks[indexOf("nest 16 KiB of JSON")].LargestAnswer = largestProblem + 1 },
		"attacks that bought more than 10 units": func(r *Report) { r.Attacks[0].LargestOrder = 11 },
	} {
		r := good()
		spoil(r)
		r.judge()
		if !slices.ContainsFunc(r.Failed(), func(c Check) bool { return strings.HasPrefix(c.What, want) }) {
			t.Errorf("%s: the run does not fail by it: %+v", want, r.Failed())
		}
	}
}

// What only says how fast the machine is does not fail a run that is not timed.
func TestTimesFailOnlyATimedRun(t *testing.T) {
	r := good()
	r.plan.Timed, r.Hostile.P99 = false, 1000
	if r.judge(); len(r.Failed()) > 0 {
		t.Errorf("it fails by %+v", r.Failed())
	}
}

// What is wrong is named as its flag is.
func TestAPlanThatCannotBeRunIsRefusedByName(t *testing.T) {
	good := Plan{Connections: 1, Addresses: 250, Rate: 1, HonestRate: 0.5, Baseline: time.Second, Duration: time.Second, Memory: 1}
	should.Fail(t, good.Check(), nil, "the least")
	for says, spoil := range map[string]func(*Plan){
		"connections: 2001 is out of range 1..2000":        func(p *Plan) { p.Connections = 2001 },
		"addresses: 0 is out of range 1..250":              func(p *Plan) { p.Addresses = 0 },
		"rate: 0 is not a finite number above 0":           func(p *Plan) { p.Rate = 0 },
		"rate: NaN is not a finite number above 0":         func(p *Plan) { p.Rate = math.NaN() },
		"honest-rate: -1 is not a finite number above 0":   func(p *Plan) { p.HonestRate = -1 },
		"honest-rate: +Inf is not a finite number above 0": func(p *Plan) { p.HonestRate = math.Inf(1) },
		"baseline: 0s is below 1s":                         func(p *Plan) { p.Baseline = 0 },
		"duration: 999ms is below 1s":                      func(p *Plan) { p.Duration = 999 * time.Millisecond },
		"memory: 0 is below 1":                             func(p *Plan) { p.Memory = 0 },
	} {
		p := good
		spoil(&p)
		if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
)

// What watchers cost a sale: purchases a second with so many streams of events open beside
// none, in turns. All of them share the processors with the sale.
//
//	go test -run '^$' -bench LiveWatchers -benchtime 5x ./cmd/stocklab
func BenchmarkLiveWatchers(b *testing.B) {
	desk := newLiveDesk(startLive(b, "auto"))
	for _, watchers := range []int{1, 50, 200} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				alone := desk.sell(b, 0)
				ratios = append(ratios, desk.sell(b, watchers)/alone)
			}
			b.ReportMetric(bench.Median(ratios), "×alone")
			b.Logf("%.2f", ratios)
		})
	}
}

// What the page in a browser costs a sale: purchases a second with it open in Chromium beside closed, in
// turns. The browser shares the processors with the sale.
//
//	go test -run '^$' -bench LiveBrowser -benchtime 5x ./cmd/stocklab
func BenchmarkLiveBrowser(b *testing.B) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		b.Skip("chromium is not on this machine; apt-get install chromium brings it")
	}
	url := startLive(b, "auto")
	desk := newLiveDesk(url)
	var ratios []float64
	for b.Loop() {
		alone := desk.sell(b, 0)
		browser := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+b.TempDir(), "--window-size=1300,2400", "--remote-debugging-port=0", url)
		browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has processes of its own
		if err := browser.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(5 * time.Second) // until it has started
		ratios = append(ratios, desk.sell(b, 0)/alone)
		if err := syscall.Kill(-browser.Process.Pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		_ = browser.Wait() // it was killed
	}
	b.ReportMetric(bench.Median(ratios), "×closed")
	b.Logf("%.2f", ratios)
}

// What recording costs a sale: purchases a second through replicas that record every request and lease, as
// those of stocklab live and of the experiments do, beside replicas that do not, in turns.
//
//	go test -run '^$' -bench Recording -benchtime 5x ./cmd/stocklab
func BenchmarkRecording(b *testing.B) {
	k, choice := labtest.StartSupervisor(b), servers.Choice{Mode: servers.Local}
	backends := startBackends(b, k, choice)
	o := cluster.Options{Replicas: 3, Env: backends.Env()}
	plain := startCluster(b, k, backends, choice, o)
	o.Lab = true
	recording := startCluster(b, k, backends, choice, o)
	recording.goods = plain.goods // they share the database
	for _, strategy := range []string{"sql-conditional", "sql-conditional grouped", "redis-lua", "redis-lua grouped", "redis-stock"} {
		b.Run(strategy, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				without := plain.sales(b, strategy)
				ratios = append(ratios, recording.sales(b, strategy)/without)
			}
			b.ReportMetric(bench.Median(ratios), "×without")
			b.Logf("%.2f", ratios)
		})
	}
}

// sales are the purchases a second of 64 clients.
func (l testLab) sales(b *testing.B, strategy string) float64 {
	b.Helper()
	name, grouped := strings.CutSuffix(strategy, " grouped")
	result, err := load.Run(b.Context(), load.Plan{
		URL: l.cluster.URL, Strategy: name, Group: grouped, GoodsID: l.create(b, 10_000_000), Clients: 64, Duration: 3 * time.Second, Timeout: time.Minute,
	})
	if err != nil || result.Sold == 0 {
		b.Fatalf("nothing is sold by %s: %v", strategy, err)
	}
	return float64(result.Sold) / result.Elapsed.Seconds()
}

// What the proxies of --proxies cost a sale: purchases a second with them beside without, in turns.
func BenchmarkLiveProxies(b *testing.B) {
	direct, through := newLiveDesk(startLive(b, "local")), newLiveDesk(startLive(b, "local", "--proxies"))
	var ratios []float64
	for b.Loop() {
		alone := direct.sell(b, 0)
		ratios = append(ratios, through.sell(b, 0)/alone)
	}
	b.ReportMetric(bench.Median(ratios), "×direct")
	b.Logf("%.2f", ratios)
}

// How long it takes from the start of the program, on embedded servers, to a number that moves: the first
// unit of a sale that is begun as soon as the address of the page is there.
//
//	go test -run '^$' -bench LiveFirstNumber -benchtime 1x -count 5 ./cmd/stocklab
func BenchmarkLiveFirstNumber(b *testing.B) {
	for b.Loop() {
		start := time.Now()
		desk := newLiveDesk(startLive(b, "embedded"))
		desk.post(b, "sale/start", `{"strategy": "naive", "stock": 1000, "clients": 50, "replicas": 3, "ttl_s": 5}`)
		desk.awaitSale(b)
		b.ReportMetric(time.Since(start).Seconds(), "s")
	}
}

func newLiveDesk(url string) liveDesk {
	page, token, _ := strings.Cut(url, "#token=")
	return liveDesk{page: page, token: token}
}

// liveDesk steers a page without a browser.
type liveDesk struct{ page, token string }

// sell sells for a while before so many watchers, and returns the sales a second.
func (d liveDesk) sell(b *testing.B, watchers int) float64 {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	d.post(b, "sale/start", `{"strategy": "sql-conditional", "group": true, "stock": 1000000, "clients": 64, "replicas": 3, "ttl_s": 5}`)
	for range watchers {
		events := d.events(ctx, b)
		go func() { _, _ = io.Copy(io.Discard, events) }() // it ends with ctx
	}
	time.Sleep(4 * time.Second) // of the sale
	d.post(b, "sale/stop", "")
	stop()
	lines := bufio.NewScanner(d.events(b.Context(), b))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var sale live.Sale
		var state live.State
		if !ok || json.Unmarshal([]byte(data), &sale) != nil || json.Unmarshal([]byte(data), &state) != nil {
			continue // a list
		}
		for _, s := range []live.Sale{sale, state.Sale} {
			if s.Phase == live.Ended && s.Verdict != nil {
				return s.Verdict.PerSecond
			}
		}
	}
	b.Fatalf("the sale has no verdict: %v", lines.Err())
	return 0
}

// awaitSale waits for the first unit that the page shows as sold.
func (d liveDesk) awaitSale(b *testing.B) {
	b.Helper()
	lines := bufio.NewScanner(d.events(b.Context(), b))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var point live.Point
		var state live.State
		if !ok || json.Unmarshal([]byte(data), &point) != nil || json.Unmarshal([]byte(data), &state) != nil {
			continue // a list
		}
		for _, p := range append(state.Points, point) {
			if p.Sold > 0 {
				return
			}
		}
	}
	b.Fatalf("nothing is sold: %v", lines.Err())
}

func (d liveDesk) events(ctx context.Context, b *testing.B) io.Reader {
	b.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.page+"events", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response, err)
	}
	context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	return response.Body
}

func (d liveDesk) post(b *testing.B, path, body string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, d.page+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	if response.StatusCode != http.StatusAccepted {
		said, _ := io.ReadAll(response.Body)
		b.Fatalf("POST %s is answered with %d %s", path, response.StatusCode, said)
	}
}

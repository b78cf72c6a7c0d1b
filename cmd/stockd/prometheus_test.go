package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// The dashboard and the alerts are evaluated by a real Prometheus that reads
// a real replica in the middle of a sale: a metric that is misspelt gives nothing,
// and such an expression would silently yield no data.
func TestEveryExpressionHasAResultInARealSale(t *testing.T) {
	r, server := watchedSale(t)
	expressions := must.Get(deploy.Expressions())(t)
	if len(expressions) < 50 {
		t.Fatalf("there are only %d expressions", len(expressions))
	}
	// One that has given something once can: a scrape that a busy machine misses has
	// all of them give nothing for a moment.
	empty := expressions
	for end := time.Now().Add(time.Minute); len(empty) > 0 && time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		empty = withoutResult(t, server, empty)
	}
	for _, expression := range empty {
		t.Errorf("in a sale this gives nothing: %s", expression)
	}
	if len(empty) > 0 {
		state, err := server.get(t.Context(), "/api/v1/targets?state=active")
		t.Errorf("Prometheus says of the replica: %s, %v", state, err)
	}
	scraped := r.scrape(t, http.StatusOK, cmdtest.Token)
	name := regexp.MustCompile(`\b(?:stockd|go|process)_[a-z0-9_]+`)
	for _, expression := range expressions {
		for _, metric := range name.FindAllString(expression, -1) {
			if !regexp.MustCompile(`(?m)^` + metric + `[{ ]`).MatchString(scraped) {
				t.Errorf("no replica has the metric %s of %s", metric, expression)
			}
		}
	}
	keepsToConventions(t, scraped)
}

// withoutResult lists the expressions that give nothing now.
func withoutResult(t *testing.T, server prometheus, expressions []string) (empty []string) {
	t.Helper()
	for _, expression := range expressions {
		if server.query(t, expression) == 0 {
			empty = append(empty, expression)
		}
	}
	return empty
}

// keepsToConventions has promtool look at the names and the texts of a scrape.
func keepsToConventions(t *testing.T, scraped string) {
	t.Helper()
	program := must.Get(servers.Find("promtool"))(t)
	check := exec.CommandContext(t.Context(), program, "check", "metrics")
	check.Stdin = strings.NewReader(scraped)
	if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}

// watchedSale is a replica with a Redis, from which people buy in every way that
// has metrics of its own, and a Prometheus that reads it.
func watchedSale(t *testing.T) (process, prometheus) {
	t.Helper()
	cmdtest.NeedRedis(t)
	k := labtest.StartSupervisor(t)
	redis := must.Get(servers.StartRedis(t.Context(), k, servers.Local))(t)
	secrets := t.TempDir()
	password, token, tickets := filepath.Join(secrets, "redis"), filepath.Join(secrets, "token"), filepath.Join(secrets, "tickets")
	for path, secret := range map[string]string{password: redis.Password, token: cmdtest.Token, tickets: strings.Repeat("ticket", 6)} {
		must.Do(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	}
	r := startReplica(t, "--redis-addresses="+redis.Address, "--redis-password-file="+password,
		"--audit-every=1s", fmt.Sprintf("--queue-items=%d", queued), "--queue-secret-file="+tickets)
	for _, goods := range []int64{manyWays, oneWay, queued} {
		must.Do(t, r.CreateGoods(t.Context(), goods, 1_000_000))
	}
	must.Get(client.Client{URL: r.URL}.Queue(t.Context(), client.Purchase{GoodsID: queued, UserID: "u"}))(t)
	status, out, errOut := stockd(append(r.owner(t), "stock", "line", "--goods", fmt.Sprint(queued))...)
	if status != cli.OK || !strings.Contains(out, "waiting 1, admitted 0") && !strings.Contains(out, "waiting 0, admitted 1") {
		t.Errorf("the line is %q (%s)", out, errOut)
	}
	sellOn(t, r)
	return r, startPrometheus(t, k, configure(t, token, strings.TrimPrefix(r.AdminURL, "http://")))
}

// prometheus is where one answers.
type prometheus string

// startPrometheus starts a Prometheus on a file of configuration. It ends with its supervisor.
func startPrometheus(t *testing.T, k *servers.Supervisor, config string) (p prometheus) {
	t.Helper()
	program, err := servers.Find("prometheus")
	labtest.Need(t, "prometheus", err == nil, "apt-get install prometheus brings it")
	_, err = servers.Launch(t.Context(), k, servers.Spec{
		Name: "prometheus", Program: program,
		Configure: func(folder string, port int) (args, env []string, err error) {
			p = prometheus("http://" + servers.Loopback(port))
			return []string{
				"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(folder, "data"),
				"--web.listen-address=" + servers.Loopback(port), "--log.level=warn",
			}, nil, nil
		},
		Ready: func(ctx context.Context, _ int) error {
			_, err := p.get(ctx, "/-/ready")
			return err
		},
	})
	must.Do(t, err)
	return p
}

// query evaluates an expression as of now, and returns how many series it has.
func (p prometheus) query(t *testing.T, expression string) int {
	t.Helper()
	body := must.Get(p.get(t.Context(), "/api/v1/query?"+url.Values{"query": {expression}}.Encode()))(t)
	var answer struct {
		Data struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	must.Do(t, json.Unmarshal(body, &answer))
	return len(answer.Data.Result)
}

func (p prometheus) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %s", response.Status, body)
	}
	return body, err
}

// What is for sale while Prometheus reads. redis-stock moves all units of its goods
// to where no other strategy finds any: those would race for nothing.
const (
	manyWays = 2
	oneWay   = 3
	queued   = 4 // it has a waiting room
)

// sellOn has some buy in each way until the test ends. They pause between two
// purchases: it is not the point that the replica has no time left for a scrape.
func sellOn(t *testing.T, r process) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	for _, way := range []struct {
		strategy string
		goods    int64
		crowd    int
	}{
		{"redis-lua", manyWays, 2}, {"sql-optimistic", manyWays, 8}, // a race takes several
		{"sql-conditional&group=true", manyWays, 2}, {"redis-stock", oneWay, 2},
	} {
		for range way.crowd {
			url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=%s", r.URL, way.goods, way.strategy)
			buyers.Go(func() {
				for pause.For(ctx, 5*time.Millisecond) == nil {
					request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
					if err != nil {
						return
					}
					cmdtest.Do(request)
				}
			})
		}
	}
	for _, err := range (client.Client{AdminURL: r.AdminURL, Token: cmdtest.Token}).Orders(ctx, client.Pages{Reader: "shipping", Limit: 1}) {
		should.Do(t, err)
		break // it dies after its first order
	}
	t.Cleanup(func() {
		stop()
		buyers.Wait()
	})
}

// configure makes a configuration of the example: what is read, and how often, is
// this test's.
func configure(t *testing.T, tokenFile, address string) (path string) {
	t.Helper()
	content := must.Get(deploy.Files.ReadFile(deploy.Prometheus))(t)
	var config map[string]any
	must.Do(t, yaml.Unmarshal(content, &config))
	config["global"] = map[string]any{"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "500ms"}
	job := config["scrape_configs"].([]any)[0].(map[string]any) //nolint:forcetypeassert // it would fail the test
	job["authorization"] = map[string]any{"credentials_file": tokenFile}
	delete(job, "dns_sd_configs")
	job["static_configs"] = []any{map[string]any{"targets": []string{address}}}
	folder := t.TempDir()
	rules, err := deploy.Files.ReadFile(deploy.Rules)
	must.Do(t, err)
	if content, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(folder, deploy.Prometheus)
	for path, content := range map[string][]byte{path: content, filepath.Join(folder, deploy.Rules): rules} {
		must.Do(t, os.WriteFile(path, content, 0o600))
	}
	return path
}

// scrape is what the admin API answers with a token.
func (r process) scrape(t *testing.T, want int, token string) string {
	t.Helper()
	request := cmdtest.Ask(t, http.MethodGet, r.AdminURL+"/metrics")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		t.Fatalf("a scrape is answered with %s, %v; want %d", response.Status, err, want)
	}
	return string(body)
}

func TestMetricsAreForTheOwnerAndTellOfEachPurchase(t *testing.T) {
	r := startReplica(t, "--limit-user-rate=0.001", "--limit-user-burst=1")
	r.scrape(t, http.StatusUnauthorized, "")
	r.scrape(t, http.StatusUnauthorized, cmdtest.Token+"?")
	should.Be(t, cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/metrics")).Status, http.StatusNotFound, "for /metrics buyers are answered with")
	const user = "a-named-buyer"
	for _, query := range []string{"user_id=1&strategy=mutex", "user_id=2&strategy=sql-conditional&group=true&quantity=7", "user_id=3&strategy=mutex&quantity=5000"} {
		r.Buy(t, "goods_id=1&"+query)
	}
	r.Buy(t, "goods_id=98765432&user_id=4")
	r.Buy(t, "goods_id=1&user_id="+user)
	r.Buy(t, "goods_id=1&user_id="+user)
	scraped := r.scrape(t, http.StatusOK, cmdtest.Token)
	for _, want := range []string{
		`stockd_deductions_total{outcome="accepted",strategy="mutex"} 1`,
		`stockd_deductions_total{outcome="sold-out",strategy="mutex"} 1`,
		`stockd_deductions_total{outcome="accepted",strategy="sql-conditional"} 2`,
		`stockd_deductions_total{outcome="unknown-goods",strategy="sql-conditional"} 1`,
		`stockd_lock_wait_seconds_count{lock="mutex"} 2`, `stockd_lock_hold_seconds_count{lock="mutex"} 2`,
		`stockd_group_batch_size_count{strategy="sql-conditional"} 1`,
		`stockd_http_requests_rate_limited_total{by="user"} 1`,
		`stockd_http_requests_in_flight{listener="public"} 0`,
		`stockd_http_requests_total{listener="public",route="/deduct",status="409"} 1`,
		`stockd_http_requests_total{listener="admin",route="/metrics",status="401"} 2`,
		`stockd_backend_up{backend="sqlite"} 1`, `stockd_stopping 0`,
	} {
		should.Contain(t, scraped, want+"\n")
	}
	for _, secret := range []string{user, "98765432", cmdtest.Token} {
		if strings.Contains(scraped, secret) {
			t.Errorf("a scrape tells of %s", secret)
		}
	}
}

package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// receiver is a collector of OpenTelemetry that takes OTLP over HTTP.
type receiver struct {
	*httptest.Server

	mu      sync.Mutex
	spans   []*otlp.Span
	sent    []byte            // as it came
	replica map[string]string // what the sender says of itself
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{replica: make(map[string]string)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var export collector.ExportTraceServiceRequest
		if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &export) != nil {
			http.Error(w, "this is no OTLP", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = append(r.sent, body...)
		for _, resource := range export.GetResourceSpans() {
			for _, said := range resource.GetResource().GetAttributes() {
				r.replica[said.GetKey()] = said.GetValue().GetStringValue()
			}
			for _, scope := range resource.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// trace is the spans of a trace.
func (r *receiver) trace(id string) (spans []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		if id == hex.EncodeToString(span.GetTraceId()) {
			spans = append(spans, span)
		}
	}
	return spans
}

// tree writes each span below its parent, those of one parent in the order in which
// they began.
func tree(spans []*otlp.Span, parent string) string {
	children := slices.DeleteFunc(slices.Clone(spans), func(s *otlp.Span) bool { return hex.EncodeToString(s.GetParentSpanId()) != parent })
	slices.SortFunc(children, func(a, b *otlp.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	var b strings.Builder
	for _, child := range children {
		b.WriteString(child.GetName() + "\n")
		for line := range strings.Lines(tree(spans, hex.EncodeToString(child.GetSpanId()))) {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// buyTraced buys within a trace of the caller.
func (r process) buyTraced(t *testing.T, query string) cmdtest.Answer {
	t.Helper()
	request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?"+query)
	request.Header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
	request.Header.Set("Idempotency-Key", "a-key-of-a-buyer")
	return cmdtest.Do(request)
}

// startTraced starts a replica with a Redis all of whose requests are traced.
func startTraced(t *testing.T) (process, *receiver, *servers.Redis) {
	t.Helper()
	cmdtest.NeedRedis(t)
	redis := must.Get(servers.StartRedis(t.Context(), labtest.StartSupervisor(t), servers.Local))(t)
	password := filepath.Join(t.TempDir(), "redis")
	must.Do(t, os.WriteFile(password, []byte(redis.Password), 0o600))
	spans := startReceiver(t)
	return startReplica(t, "--trace-endpoint="+spans.URL, "--trace-sample=1",
		"--redis-addresses="+redis.Address, "--redis-password-file="+password), spans, redis
}

// assertTrace waits for the caller's trace.
func (r *receiver) assertTrace(t *testing.T, want string) {
	t.Helper()
	labtest.Await(t, "the trace", 10*time.Second, func() bool { return len(r.trace(callersTrace)) >= strings.Count(want, "\n") })
	should.Be(t, tree(r.trace(callersTrace), callersSpan), want, "the spans below the caller's")
}

func TestATraceLeadsFromTheRequestThroughTheLockToSQLAndRedis(t *testing.T) {
	r, spans, redis := startTraced(t)
	r.Buy(t, "goods_id=1&strategy=redis-lua") // makes a connection, and brings the scripts
	got := r.buyTraced(t, "goods_id=1&strategy=redis-lua&quantity=123&user_id=a-named-buyer")
	must.Be(t, got.Status, http.StatusOK, "the purchase is answered with", got.Text)
	spans.assertTrace(t, `POST /deduct
  find requests
    sql SELECT tb_stock_ledger
  find units in Redis
    sql SELECT tb_stock_place
  deduct
    wait for lock
      redis evalsha
    hold lock
      sql SELECT tb_goods_stock
      sql begin_tx
      sql INSERT tb_stock_ledger
      sql UPDATE tb_goods_stock
      sql commit
      redis evalsha
`)
	r.Terminate(t)
	should.Be(t, r.Exit(t), cli.OK, "the replica ends")
	spans.mu.Lock()
	defer spans.mu.Unlock()
	for _, secret := range []string{redis.Password, cmdtest.Token, "a-named-buyer", "a-key-of-a-buyer", "goods/1", "goods%2F1"} {
		if strings.Contains(string(spans.sent), secret) {
			t.Errorf("the traces tell of %q", secret)
		}
	}
}

// What is left is sent when a replica stops, and what fails names its kind and not
// what it says: a database quotes values.
func TestTheLastTracesAreSentAndErrorsKeepTheirWordsToThemselves(t *testing.T) {
	spans := startReceiver(t)
	r := startReplica(t, "--trace-endpoint="+spans.URL, "--trace-sample=0", "--trace-trust-parent=true") // the caller samples
	for range 2 {
		r.buyTraced(t, "goods_id=1&strategy=sql-conditional&group=true")
	}
	r.Terminate(t)
	should.Be(t, r.Exit(t), cli.OK, "the replica ends")
	should.Contain(t, tree(spans.trace(callersTrace), callersSpan), "    write batch\n      sql begin_tx\n")
	if said := spans.replica; said["service.name"] != "stockd" || said["service.instance.id"] == "" || said["service.version"] == "" {
		t.Errorf("the replica says of itself %v, want its name, its instance and its version", said)
	}
	if strings.Contains(string(spans.sent), "a-key-of-a-buyer") {
		t.Error("the traces tell of a key")
	}
}

func TestNothingIsSentThatIsNotAskedFor(t *testing.T) {
	spans := startReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", spans.URL) // which is for others
	r := startReplica(t, "--trace-sample=1")
	got := r.buyTraced(t, "goods_id=1&strategy=mutex")
	should.Be(t, got.Status, http.StatusOK, "the purchase is answered with", got.Text)
	r.Terminate(t)
	r.Exit(t)
	spans.mu.Lock()
	defer spans.mu.Unlock()
	should.Be(t, len(spans.sent), 0, "bytes are sent to the collector of others")
}

// What other libraries read from variables, and quote where it is wrong, may hold a password or a key.
func TestWrongVariablesOfLibrariesAreNotShown(t *testing.T) {
	env := []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization hidden,x-key=hidden%zz", "HTTP_PROXY=http://shop:hidden@a proxy:1", "HTTPS_PROXY=http://shop:hidden@a proxy:1", "NO_PROXY="}
	r := process{cmdtest.StartEmpty(t, "serve", env, "--trace-endpoint=http://collector.invalid:4318", "--trace-sample=1")}
	r.Buy(t, "goods_id=1")
	labtest.Await(t, "a line of the log", 20*time.Second, func() bool { return r.Log.Contains("traces are not sent") })
	token := filepath.Join(t.TempDir(), "token")
	overwrite(t, token, cmdtest.Token)
	said := r.Log.String()
	for _, url := range []string{"http://shop.invalid", "https://shop.invalid", "http://shop:hidden@shop.invalid:x", "http://shop:hidden@%zz", "http://shop:hidden@shop.invalid"} {
		command := exec.CommandContext(t.Context(), os.Args[0], "stock", "--goods=1", "--units=1", "--token-file="+token, "--admin-url="+url)
		command.Env = append(cmdtest.Environment(), env...)
		text, err := command.CombinedOutput()
		if err == nil {
			t.Errorf("%s is asked: %s", url, text)
		}
		said += string(text)
	}
	if strings.Contains(said, "hidden") {
		t.Errorf("a variable is shown:\n%s", said)
	}
}

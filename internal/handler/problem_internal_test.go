package handler

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/internal/stock"
)

// Whatever problem this package can answer with is described with its status, and
// no other one is.
func TestEveryProblemIsDescribed(t *testing.T) {
	contract, err := apitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	described, made := contract.Problems(), madeHere(t)
	for _, known := range problems() {
		made[known.slug] = known.status
	}
	for kind, status := range made {
		if got, ok := described[kind]; !ok || got != status {
			t.Errorf("the problem %s with status %d is described with status %d", kind, status, got)
		}
	}
	for kind := range described {
		if _, ok := made[kind]; !ok {
			t.Errorf("the problem %s is described, and no code makes it", kind)
		}
	}
}

// madeHere is the status of every kind that this package's source calls newProblem
// with.
func madeHere(t *testing.T) map[string]int {
	t.Helper()
	made := make(map[string]int)
	files := token.NewFileSet()
	parsed, err := parser.ParseDir(files, ".", func(f os.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0) //nolint:staticcheck // one package, and no build tags
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed["handler"], func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "newProblem" {
			return true
		}
		kind, literal := call.Args[1].(*ast.BasicLit)
		status, named := call.Args[0].(*ast.SelectorExpr)
		if !literal || !named { // problemOf makes those of the table
			return true
		}
		slug, err := strconv.Unquote(kind.Value)
		if err != nil {
			t.Fatal(err)
		}
		made[slug] = statusNamed(t, status.Sel.Name)
		return true
	})
	return made
}

// statusNamed is the number behind a constant of net/http.
func statusNamed(t *testing.T, name string) int {
	t.Helper()
	for status := 400; status < 600; status++ {
		if "Status"+strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	t.Fatalf("http.%s is no status", name)
	return 0
}

// An error may be of several kinds. No client gets an answer that says nothing happened where
// that is not known, nor that it may simply try again where it has lost its lock.
func TestAnErrorOfSeveralKindsIsTheOneThatSaysLeast(t *testing.T) {
	backend := &stock.BackendError{Backend: "mysql", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		kinds []error
		want  string
	}{
		{[]error{stock.ErrBusy, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrLeaseLost, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrFenced, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{backend, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{context.DeadlineExceeded, stock.ErrUnknownOutcome}, "outcome-unknown"},
		{[]error{stock.ErrBusy, stock.ErrLeaseLost}, "lease-lost"},
		{[]error{context.Canceled, stock.ErrLeaseLost}, "lease-lost"},
		{[]error{context.DeadlineExceeded, backend}, "backend-unavailable"},
	} {
		got := problemOf(fmt.Errorf("sell: %w", errors.Join(c.kinds...)))
		if got.Type != TypePrefix+c.want {
			t.Errorf("%v is %s, want %s", c.kinds, got.Type, c.want)
		}
	}
}

// Which backend fails is for the client, where and how is not.
func TestABackendThatFailsIsNamedAndNotQuoted(t *testing.T) {
	got := problemOf(fmt.Errorf("sell: %w", &stock.BackendError{Backend: "mysql", Err: errors.New("dial 10.0.0.7:3306: refused")}))
	if got.Backend != "mysql" || got.Detail != "mysql does not answer" {
		t.Errorf("it is answered with %+v", got)
	}
}

func TestAProblemCountsTheFieldsThatItsDetailLeavesOut(t *testing.T) {
	field := fieldError{"a", "is wrong"}
	for want, got := range map[string]problem{
		"a is wrong":              invalid(field),
		"a is wrong (and 1 more)": invalid(field, field),
		"a is wrong (and 4 more)": invalidAnd(3, field, field),
	} {
		if got.Detail != want {
			t.Errorf("the detail is %q, want %q", got.Detail, want)
		}
	}
}

// An answer may be sent for as long as its request may take, and a little longer: the
// server's own limit begins with the header.
func TestAnAnswerMayBeSentAfterTheLimitOfItsRequest(t *testing.T) {
	w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	c, _ := gin.CreateTestContext(w)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.Request = httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	extendWrite(c)
	if limit, _ := ctx.Deadline(); w.deadline.Before(limit.Add(time.Second)) {
		t.Errorf("it is cut off at %s, and the request may take until %s", w.deadline, limit)
	}
}

type deadlined struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

// Clients that are rejected together do not return together.
func TestRetryAfterHasJitter(t *testing.T) {
	seen := make(map[string]int)
	for range 200 {
		seen[retryAfter()]++
		seen["of a rate: "+tooOften("it asks", 1200*time.Millisecond).retryAfter]++
	}
	for _, want := range []string{"1", "2", "3", "of a rate: 2", "of a rate: 3", "of a rate: 4"} {
		if seen[want] == 0 {
			t.Errorf("of 200 none is %s: %v", want, seen)
		}
	}
	if len(seen) != 6 {
		t.Errorf("Retry-After is %v, want 1 to 3, and 2 to 4 for a wait of 1.2 s", seen)
	}
}

func TestAnUnknownOutcomeNamesTheKeyThatFindsItOut(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{{stock.ErrUnknownOutcome, true}, {stock.ErrBusy, false}} {
		w := httptest.NewRecorder()
		ctx, _ := gin.CreateTestContext(w)
		ctx.Request = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/deduct", nil)
		sale{options: Options{Log: slog.New(slog.DiscardHandler)}}.reject(ctx, stock.BuyerKey("key-1", "u-1"), c.err)
		body := w.Body.String()
		if strings.Contains(body, `"request_id":"key-1"`) != c.want || strings.Contains(body, "Idempotency-Key: key-1 to find out") != c.want {
			t.Errorf("%v is answered with %s", c.err, body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Error("a browser may take a problem, which quotes the request, for a page")
		}
	}
}

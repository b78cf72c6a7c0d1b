package failpoint_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// admin sends a request to /lab/faults of a replica.
type admin func(t *testing.T, method, body string) *httptest.ResponseRecorder

// serve serves the routes of a registry on the admin API.
func serve(t *testing.T, l *failpoint.Registry) admin {
	t.Helper()
	const token = "the-token-of-this-test"
	gin.SetMode(gin.ReleaseMode)
	store := labtest.Open(t, &servers.Database{Driver: servers.SQLite, DSN: filepath.Join(t.TempDir(), "stock.db")}, "replica-1")
	naive := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != "naive" })
	catalogue := service.NewCatalogue(t.Context(), naive, strategy.Deps{Store: store}, time.Second)
	api := handler.Admin(handler.Options{
		Catalogue: catalogue, Routes: l.Routes(), Timeout: time.Second, MaxBody: 1 << 10, Log: slog.New(slog.DiscardHandler), Observer: metrics.New(metrics.Build{}),
	}, admintoken.Single(token))
	return func(t *testing.T, method, body string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, "http://localhost/lab/faults", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
}

func TestFaultsAreSetListedAndCleared(t *testing.T) {
	l, _ := open(t)
	send := serve(t, l)
	want := []failpoint.Fault{
		{Do: failpoint.Hold, GoodsID: 7, Strategy: "naive", For: 1500 * time.Millisecond, IgnoreCancel: true, Times: 3},
		{Do: failpoint.Hold, For: time.Millisecond, Times: 1},
		{Do: failpoint.Hold, For: 10 * time.Minute, Times: 1_000_000},
		{Do: failpoint.Pause, IgnoreCancel: true, Times: 1},
		{Do: failpoint.Crash, GoodsID: 9, Times: 1},
	}
	for i, body := range []string{
		`{"do":"hold","goods_id":7,"strategy":"naive","for":"1.5s","deaf":true,"times":3}`, `{"do":"hold","for":"1ms"}`,
		`{"do":"hold","for":"10m","times":1000000}`, `{"do":"pause","deaf":true}`, `{"do":"crash","goods_id":9}`,
	} {
		w := send(t, http.MethodPost, body)
		var set failpoint.Fault
		if err := json.Unmarshal(w.Body.Bytes(), &set); w.Code != http.StatusCreated || err != nil || set != want[i] {
			t.Errorf("%s is answered with %d %s (%v), want %+v", body, w.Code, w.Body, err, want[i])
		}
	}
	var list struct {
		Faults []failpoint.Fault `json:"faults"`
	}
	if w := send(t, http.MethodGet, ""); w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &list) != nil || len(list.Faults) != len(want) {
		t.Fatalf("the list is answered with %d %s", w.Code, w.Body)
	}
	for i := range want {
		should.Be(t, list.Faults[i], want[i], "fault … is", i)
	}
	if w := send(t, http.MethodDelete, ""); w.Code != http.StatusNoContent || w.Body.Len() > 0 || len(l.Faults()) > 0 {
		t.Errorf("the deletion is answered with %d %s, and faults are %+v", w.Code, w.Body, l.Faults())
	}
	should.Be(t, send(t, http.MethodGet, "").Body.String(), `{"faults":[]}`, "the list without faults")
}

func TestAFaultThatIsWrongIsNotSet(t *testing.T) {
	l, _ := open(t)
	send := serve(t, l)
	for body, field := range map[string]string{
		`{}`: "do", `{"do":"stop"}`: "do",
		`{"do":"hold"}`: "for", `{"do":"hold","for":"999us"}`: "for", `{"do":"hold","for":"10m1ms"}`: "for",
		`{"do":"pause","for":"1s"}`: "for", `{"do":"crash","for":"1s"}`: "for", `{"do":"crash","deaf":true}`: "deaf",
		`{"do":"crash","times":0}`: "times", `{"do":"crash","times":1000001}`: "times",
		`{"do":"crash","goods_id":-1}`: "goods_id", `{"do":"crash","strategy":"hope"}`: "strategy", `{"do":"crash","reached":1}`: "reached",
	} {
		if w := send(t, http.MethodPost, body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"`+field+`"`) {
			t.Errorf("%s is answered with %d %s, want the field %s", body, w.Code, w.Body, field)
		}
	}
	if len(l.Faults()) > 0 {
		t.Errorf("faults are %+v", l.Faults())
	}
}

func TestAFaultIsReadAsItIsWritten(t *testing.T) {
	for text, fault := range map[string]failpoint.Fault{
		`{"do":"hold","goods_id":7,"strategy":"naive","deaf":true,"times":3,"reached":2,"for":"1.5s"}`: {
			Do: failpoint.Hold, GoodsID: 7, Strategy: "naive", For: 1500 * time.Millisecond, IgnoreCancel: true, Times: 3, Reached: 2,
		},
		`{"do":"crash","goods_id":0,"strategy":"","deaf":false,"times":1,"reached":0}`: {Do: failpoint.Crash, Times: 1},
	} {
		if content, err := json.Marshal(fault); err != nil || string(content) != text {
			t.Errorf("%+v is written as %s (%v), want %s", fault, content, err, text)
		}
		var read failpoint.Fault
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != fault {
			t.Errorf("%s is read as %+v (%v), want %+v", text, read, err, fault)
		}
	}
	for _, text := range []string{`{"for":"long"}`, `{"for":5}`, `[]`} {
		if err := json.Unmarshal([]byte(text), new(failpoint.Fault)); err == nil {
			t.Errorf("%s is read as a fault", text)
		}
	}
}

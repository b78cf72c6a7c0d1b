package hostile

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// Each row is what the ledger has of two honest purchases and one of the attacker's, and what is wrong.
func TestTheLedgerIsComparedWithTheAnswers(t *testing.T) {
	row := func(user, key string) order { return order{hotItem, 1, user, key} }
	ann, bob, thief := row("ann", "a"), row("bob", "b"), order{hotItem, 3, "thief", ""}
	type ledger map[string][]order
	for name, c := range map[string]struct {
		orders ledger
		sold   []accepted
		stolen map[string]int64
		want   Ledger
	}{
		"right":                       {ledger{"1": {ann}, "2": {bob}, "3": {thief}}, nil, nil, Ledger{}},
		"a row is missing":            {ledger{"1": {ann}, "3": {thief}}, nil, nil, Ledger{Missing: 1}},
		"two rows of one order":       {ledger{"1": {ann, ann}, "2": {bob}}, nil, nil, Ledger{Repeated: 1}},
		"one order for two purchases": {ledger{"1": {ann}, "2": {bob}}, []accepted{{row("ann", "again"), "1"}}, nil, Ledger{Repeated: 1}},
		"of another buyer":            {ledger{"1": {row("bob", "a")}, "2": {bob}}, nil, nil, Ledger{Altered: 1}},
		"under another key":           {ledger{"1": {row("ann", "x")}, "2": {bob}}, nil, nil, Ledger{Altered: 1}},
		"of more units":               {ledger{"1": {order{hotItem, 2, "ann", "a"}}, "2": {bob}}, nil, nil, Ledger{Altered: 1}},
		"of another item":             {ledger{"1": {order{baselineItem, 1, "ann", "a"}}, "2": {bob}}, nil, nil, Ledger{Altered: 1}},
		"given to the attacker":       {ledger{"1": {ann}, "2": {bob}}, nil, map[string]int64{"2": 1}, Ledger{Revealed: 1}},
		"answered to none":            {ledger{"1": {ann}, "2": {bob}, "4": {thief}}, nil, nil, Ledger{Unreported: 1}},
		"smuggled in":                 {ledger{"1": {ann}, "2": {bob}, "4": {order{baselineItem, 1, "x", smuggledKey + "y"}}}, nil, nil, Ledger{Smuggled: 1}},
		"of another item, to none":    {ledger{"1": {ann}, "2": {bob}, "4": {order{baselineItem, 3, "x", ""}}}, nil, nil, Ledger{}},
		"accepted, and in no row":     {ledger{"1": {ann}, "2": {bob}}, []accepted{{row("cid", "c"), "5"}}, nil, Ledger{Missing: 1}},
	} {
		crowd := &crowd{sold: append([]accepted{{ann, "1"}, {bob, "2"}}, c.sold...), unknown: 7}
		stolen := map[string]int64{"3": 3}
		maps.Copy(stolen, c.stolen)
		var got Ledger
		got.compare(crowd, c.orders, stolen)
		c.want.Honest, c.want.Unknown = 2+len(c.sold), 7
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Each answer counts once, in the class of its status; 429 is apart, as the attacker provokes it.
func TestTheFiguresOfAnAttack(t *testing.T) {
	tally := newTally([]Attack{{Name: "other"}, {Name: "flood", Row: "2"}})
	tally.add(1, []outcome{
		{end: answered, status: 200, order: "1", units: 3, size: 90},
		{end: answered, status: 201, order: "2", units: 2, size: 10},
		{end: answered, status: 429, problem: "too-many-requests", size: 50},
		{end: answered, status: 428},
		{end: answered, status: 430},
		{end: answered, status: 499},
		{end: answered, status: 500, problem: "internal"},
		{end: unreached},
		{end: silent},
	})
	f := tally.figures[1]
	want := Figures{
		Attack: "flood", Row: "2", Made: 9, Ends: map[end]int{answered: 7, unreached: 1, silent: 1},
		Statuses: map[string]int{"2xx": 2, "429": 1, "4xx": 3, "5xx": 1}, Problems: map[string]int{"too-many-requests": 1, "internal": 1},
		Orders: 2, Units: 5, LargestOrder: 3, LargestAnswer: 90,
	}
	if !reflect.DeepEqual(f, want) || f.Reached() != 8 || tally.figures[0].Made != 0 {
		t.Errorf("%+v, reached %d; want %+v", f, f.Reached(), want)
	}
	if orders := map[string]int64{"1": 3, "2": 2}; !reflect.DeepEqual(tally.orders, orders) {
		t.Errorf("the attacker got %v, want %v", tally.orders, orders)
	}
}

// What was logged before the attack is not of it, and a panic or a race counts wherever it stands.
func TestTheLogOfAnAttackIsRead(t *testing.T) {
	paths := []string{filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")}
	const before = "panic of an earlier run\n"
	const first = `{"level":"INFO","msg":"sold"}` + "\n" + `{"level":"WARN","msg":"slow"}` + "\n" + "panic: here\n"
	const second = `{"level":"WARN","msg":"slow"}` + "\n" + "WARNING: DATA RACE\n"
	for path, content := range map[string]string{paths[0]: before, paths[1]: ""} {
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
	from := sizes(append([]string{filepath.Join(t.TempDir(), "none")}, paths...))[1:]
	for path, content := range map[string]string{paths[0]: before + first, paths[1]: second} {
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
	got, err := readLogs(paths, from)
	want := Log{Bytes: int64(len(first) + len(second)), Panics: 2, Lines: map[string]int{"WARN slow": 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	if _, err := readLogs([]string{filepath.Join(t.TempDir(), "none")}, from); err == nil {
		t.Error("a log that is not there is read")
	}
}

// An item is invented where its whole number is: a time or an id that contains it is none.
func TestAnInventedItemIsFound(t *testing.T) {
	for key, want := range map[string]bool{
		"stockd:{" + inventedPrefix + "12345678}:lua": true, inventedPrefix + "12345678": true, "goods/" + inventedPrefix + "00000000/x": true,
		"1" + inventedPrefix + "12345678": false, inventedPrefix + "123456789": false, inventedPrefix + "1234567": false, "stockd:{1}:lua": false,
	} {
		should.Be(t, invented().MatchString(key), want, "… is invented", key)
	}
}

// A purchase is tried again under its key until it is known what has come of it.
func TestAnHonestBuyerIsCounted(t *testing.T) {
	sold := `{"order_id": "17"}`
	problem := func(code string) string { return `{"type": "urn:stockd:problem:` + code + `"}` }
	for name, c := range map[string]struct {
		answers []string // the last one again and again; the status is that of a sale or of a problem
		gone    bool
		unknown int // purchases
		want    Honest
	}{
		"sold":                  {[]string{sold}, false, 0, Honest{Attempts: 1, Sold: 1}},
		"sold out":              {[]string{problem("insufficient-stock")}, true, 0, Honest{Attempts: 1, SoldOut: 1}},
		"sold at the third":     {[]string{problem("busy"), problem("outcome-unknown"), sold}, false, 0, Honest{Attempts: 3, Sold: 1, Unknown: 1, Rejected: map[string]int{"busy": 1}}},
		"given up":              {[]string{problem("busy")}, false, 0, Honest{Attempts: maxTries, Failed: 1, Rejected: map[string]int{"busy": maxTries}}},
		"given up, and unknown": {[]string{problem("outcome-unknown"), problem("busy")}, false, 1, Honest{Attempts: maxTries, Failed: 1, Unknown: 1, Rejected: map[string]int{"busy": maxTries - 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := make(map[string]int)
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := c.answers[min(asked, len(c.answers)-1)]
				asked++
				keys[r.Header.Get("Idempotency-Key")]++
				w.Header().Set("Content-Type", "application/problem+json")
				switch {
				case answer == sold:
				case strings.Contains(answer, "insufficient-stock"):
					w.WriteHeader(http.StatusConflict)
				default:
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer server.Close()
			crowd := &crowd{url: server.URL, seed: 1, phase: &Honest{Rejected: map[string]int{}}, latency: newLatencies()}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // it does not pause between its tries then
			gone := crowd.buy(ctx, clientFrom(server.URL, honestAddress(0)), hotItem, time.Now())
			if c.want.Rejected == nil {
				c.want.Rejected = map[string]int{}
			}
			if gone != c.gone || !reflect.DeepEqual(*crowd.phase, c.want) || crowd.unknown != c.unknown || len(keys) != 1 || len(crowd.sold) != c.want.Sold {
				t.Errorf("gone %t, %+v, %d unknown, keys %v, sold %+v; want %t, %+v, %d", gone, *crowd.phase, crowd.unknown, keys, crowd.sold, c.gone, c.want, c.unknown)
			}
			if c.want.Sold > 0 && (crowd.sold[0].id != "17" || crowd.sold[0].item != hotItem || keys[crowd.sold[0].key] == 0 || crowd.latency.sold.TotalCount() != 1) {
				t.Errorf("it was sold %+v under %v", crowd.sold, keys)
			}
		})
	}
}

func TestTheShareOfRejectedRequests(t *testing.T) {
	h := Honest{Attempts: 8, Rejected: map[string]int{"busy": 1, "too-many-requests": 1}}
	should.Be(t, h.RejectedShare(), 0.25, "the share of 8 that was rejected")
	should.Be(t, (Honest{}).RejectedShare(), 0, "the share of none that was rejected")
}

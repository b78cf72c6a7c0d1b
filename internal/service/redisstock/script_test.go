package redisstock_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
)

// model is a partition with two items, of which the first has a limit, and the SQL that
// belongs to it. It takes the steps of the script in any order.
type model struct {
	t      *testing.T
	random *mathrand.Rand
	client redis.UniversalClient
	script *redis.Script
	base   string
	items  map[string]*modelItem
	kept   []modelEntry // in the ledger, and not settled
	// answered are the purchases that an installed counter has decided on.
	answered int
}

// modelItem is what SQL has of an item.
type modelItem struct {
	id           string
	limit        int64
	epoch, units int64
	closed       bool  // in this epoch
	added        int64 // in this epoch
	users        map[string]int64
	kept         map[string]int64 // of them, as orders of the script
	returned     map[string]int64
	late         func() // a step that arrives once more
}

type modelEntry struct {
	id     string
	fields map[string]any
}

// text is a field, empty where the entry has none.
func (e modelEntry) text(name string) string {
	if value, ok := e.fields[name]; ok {
		return fmt.Sprint(value)
	}
	return ""
}

func (e modelEntry) whole(name string) int64 {
	n, _ := strconv.ParseInt(e.text(name), 10, 64)
	return n
}

func newModel(t *testing.T, client redis.UniversalClient, seed uint64) *model {
	t.Helper()
	return &model{
		t: t, random: mathrand.New(mathrand.NewPCG(seed, seed)), client: client, script: redis.NewScript(redisstock.Source()),
		base: "{model-" + rand.Text() + "}:",
		items: map[string]*modelItem{
			"1": {id: "1", limit: 50, units: 60, users: make(map[string]int64), kept: make(map[string]int64), returned: make(map[string]int64)},
			"2": {id: "2", units: 60, users: make(map[string]int64), kept: make(map[string]int64), returned: make(map[string]int64)},
		},
	}
}

func (m *model) run(operation string, keys []string, args ...any) any {
	m.t.Helper()
	for i := range keys {
		keys[i] = m.base + keys[i]
	}
	answer, err := m.script.Run(m.t.Context(), m.client, keys, append([]any{operation}, args...)...).Result()
	if err != nil {
		m.t.Fatalf("%s: %v", operation, err)
	}
	return answer
}

// onStream are the orders of an item on the stream that the ledger does not have.
func (m *model) onStream(item string) []modelEntry {
	m.t.Helper()
	messages, err := m.client.XRange(m.t.Context(), m.base+"orders", "-", "+").Result()
	if err != nil {
		m.t.Fatal(err)
	}
	var entries []modelEntry
	for _, message := range messages {
		e := modelEntry{id: message.ID, fields: message.Values}
		isKept := slices.ContainsFunc(m.kept, func(k modelEntry) bool { return k.id == e.id })
		if e.text("goods") == item && !isKept {
			entries = append(entries, e)
		}
	}
	return entries
}

func (m *model) sell(i *modelItem) {
	user, quantity, request := "u"+strconv.Itoa(m.random.IntN(8)), 1+m.random.IntN(3), rand.Text()
	ttl := []string{"", "60000000"}[m.random.IntN(2)]
	answers, _ := m.run("sell", []string{"goods:" + i.id, "users:" + i.id, "orders", "request:" + request},
		i.id, "replica", 0, "", request, quantity, user, "order-"+request, ttl).([]any)
	if len(answers) == 1 {
		m.answered++
	}
}

// keep writes an order of the present epoch into the ledger.
func (m *model) keep(i *modelItem) {
	for _, e := range m.onStream(i.id) {
		if e.whole("epoch") != i.epoch || m.random.IntN(2) == 0 {
			continue
		}
		if i.units -= e.whole("quantity"); i.units < 0 {
			m.t.Fatalf("item %s is overdrawn", i.id)
		}
		i.users[e.text("user")] += e.whole("quantity")
		i.kept[e.text("user")] += e.whole("quantity")
		m.kept = append(m.kept, e)
	}
}

// settle takes some of the orders off the stream that the ledger has.
func (m *model) settle(all bool) {
	keys := []string{"orders", "goods:1", "users:1", "staged:1", "goods:2", "users:2", "staged:2"}
	args := []any{"ledger", 60000, 2, "channel"}
	m.kept = slices.DeleteFunc(m.kept, func(e modelEntry) bool {
		if !all && m.random.IntN(2) == 0 {
			return false
		}
		keys = append(keys, "request:"+e.text("request"))
		args = append(args, e.id, e.text("goods"), e.text("epoch"), e.text("quantity"), e.text("user"))
		return true
	})
	if len(args) > 4 {
		m.run("settle", keys, args...)
	}
}

// fill begins an epoch in SQL: a closed one, or one with some units more.
func (m *model) fill(i *modelItem) {
	i.epoch++
	i.added = 0
	if i.closed = m.random.IntN(3) == 0; !i.closed {
		i.units += int64(m.random.IntN(4))
	}
	staged := 0
	if i.limit > 0 && !i.closed {
		staged = 1
	}
	m.run("begin", []string{"goods:" + i.id, "staged:" + i.id}, i.epoch, staged)
}

// recall returns the units of a closed epoch to the row.
func (m *model) recall(i *modelItem) {
	answer, ok := m.run("drain", []string{"goods:" + i.id, "orders"}).([]any)
	if !ok || answer[1] != strconv.FormatInt(i.epoch, 10) {
		return
	}
	if !i.closed {
		m.t.Fatalf("item %s: an open counter was drained", i.id)
	}
	pending, err := strconv.ParseInt(fmt.Sprint(answer[0]), 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	i.units = min(i.units, pending)
}

// step takes one step of a rebuild, as one of two owners.
func (m *model) step(i *modelItem) (done bool) {
	owner, marker := []string{"a", "b"}[m.random.IntN(2)], "marker:"+i.id
	state, ok := m.run("survey", []string{"goods:" + i.id, marker}, owner, 1000, i.epoch-1).([]any)
	if !ok {
		m.t.Fatal("no state of the rebuild")
	}
	switch {
	case state[0] == "THERE":
		return true
	case state[0] == "TAKEN":
		m.run("release", []string{marker}, map[string]string{"a": "b", "b": "a"}[owner])
	case state[0] == "NONE" || state[1] != strconv.FormatInt(i.epoch, 10):
		m.fill(i)
	case state[3] != "1":
		m.stage(i, owner, marker, fmt.Sprint(state[2]))
	default:
		const page = 5
		m.run("page", []string{"goods:" + i.id, "users:" + i.id, "orders", "staged:" + i.id, marker},
			owner, 1000, i.epoch, i.id, i.units, i.limit, "channel", page, map[bool]int{true: 1}[i.closed], i.added)
	}
	return false
}

func (m *model) stage(i *modelItem, owner, marker, after string) {
	const page = 3
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(i.users)), func(u string) bool { return u <= after })
	end, last := 1, after
	if len(names) >= page {
		names, end = names[:page], 0
	}
	args := append(make([]any, 0, 6+2*len(names)), owner, 1000, i.epoch, after, nil, end)
	for _, u := range names {
		last = u
		args = append(args, u, i.users[u])
		if i.returned[u] != 0 || i.users[u] != i.kept[u] {
			args = append(args, "\x00"+u, fmt.Sprint(i.returned[u], " ", i.users[u]-i.kept[u]))
		}
	}
	args[4] = last
	i.late = func() { m.run("stage", []string{"goods:" + i.id, "staged:" + i.id, marker}, args...) }
	i.late()
}

func (m *model) entryKeys(i *modelItem, e modelEntry) []string {
	return []string{"goods:" + i.id, "users:" + i.id, "orders", "dead", "request:" + e.text("request"), "staged:" + i.id, "buried:" + e.text("order")}
}

func (m *model) entryArgs(e modelEntry) []any {
	names := []string{"goods", "quantity", "epoch", "request", "order", "remaining", "at", "replica", "user", "ttl"}
	args := make([]any, 0, len(names))
	for _, name := range names {
		args = append(args, e.text(name))
	}
	return args
}

// restore offers orders of an epoch that is over again.
func (m *model) restore(i *modelItem, all bool) {
	for _, e := range m.onStream(i.id) {
		if e.whole("epoch") < i.epoch && (all || m.random.IntN(2) == 0) {
			at := m.run("clock", []string{"orders"})
			m.run("restore", m.entryKeys(i, e), append(append([]any{"ledger", e.id}, m.entryArgs(e)...), e.text("limit"), "", "", at, 60000)...)
		}
	}
}

// bury dead-letters one order.
func (m *model) bury(i *modelItem) {
	if entries := m.onStream(i.id); len(entries) > 0 {
		e := entries[m.random.IntN(len(entries))]
		m.run("bury", m.entryKeys(i, e), append(append([]any{"ledger", e.id, "a reason", "channel"}, m.entryArgs(e)...), 60000)...)
	}
}

// giveBack has a buyer give a unit back, which comes into the allocation; or buy one through another strategy.
func (m *model) giveBack(i *modelItem) {
	user := "u" + strconv.Itoa(m.random.IntN(8))
	if m.random.IntN(3) == 0 {
		i.users[user]++
	} else if i.users[user] > 0 {
		i.users[user]--
		i.returned[user]++
		if !i.closed {
			i.units++
			i.added++
		}
	}
}

// add tells the script what came back. It may arrive again, and late.
func (m *model) add(i *modelItem) {
	args := append(make([]any, 0, 4+3*len(i.users)), i.epoch, i.added, "channel", i.id)
	for u, units := range i.users {
		args = append(args, u, i.returned[u], units-i.kept[u])
	}
	i.late = func() { m.run("add", []string{"goods:" + i.id, "users:" + i.id}, args...) }
	if m.random.IntN(2) == 0 {
		i.late()
	}
}

// act takes one step of any kind.
func (m *model) act() {
	i := m.items[[]string{"1", "2"}[m.random.IntN(2)]]
	switch n := m.random.IntN(50); {
	case n >= 46:
		m.add(i)
	case n >= 40:
		m.giveBack(i)
	case n < 12:
		m.sell(i)
	case n < 16:
		m.keep(i)
	case n < 20:
		m.settle(false)
	case n < 21:
		m.bury(i)
	case n < 22:
		m.fill(i)
	case n < 24:
		m.restore(i, false)
	case n < 25:
		m.recall(i)
	case n < 27 && i.late != nil:
		i.late()
	default:
		m.step(i)
	}
}

// assertExact ends every rebuild and settles everything. What Redis may still sell and
// what is on the stream are then what SQL has; and so are the users, and their orders.
func (m *model) assertExact() {
	m.t.Helper()
	m.settle(true)
	for id, i := range m.items {
		for try := 0; !m.step(i); try++ {
			if try > 1000 {
				m.t.Fatal("a rebuild does not end")
			}
		}
		m.restore(i, true)
		m.recall(i)
		for u, units := range i.users {
			if units > 0 { // what it has through other strategies is known from then on
				i.users[u]--
				i.returned[u]++
			}
		}
		m.add(i)
		i.late()
		pending, users := int64(0), maps.Clone(i.users)
		for _, e := range m.onStream(id) {
			pending += e.whole("quantity")
			users[e.text("user")] += e.whole("quantity")
		}
		want := []any{strconv.FormatInt(i.units-pending, 10), strconv.FormatInt(pending, 10), strconv.FormatInt(i.epoch, 10)}
		got, err := m.client.HMGet(m.t.Context(), m.base+"goods:"+id, "units", "promised", "epoch").Result()
		if err != nil || !slices.Equal(got, want) {
			m.t.Errorf("item %s: the counter is %v (%v), want units, pending units and epoch %v", id, got, err, want)
		}
		if i.limit > 0 && !i.closed {
			m.assertUsers(i, users)
		}
	}
}

func (m *model) assertUsers(i *modelItem, want map[string]int64) {
	m.t.Helper()
	kept, err := m.client.HGetAll(m.t.Context(), m.base+"users:"+i.id).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	got := make(map[string]int64)
	for user, units := range kept {
		if user[0] != 0 { // a mark
			got[user], _ = strconv.ParseInt(units, 10, 64)
		}
	}
	isNone := func(_ string, units int64) bool { return units == 0 }
	maps.DeleteFunc(got, isNone)
	maps.DeleteFunc(want, isNone)
	if !maps.Equal(got, want) {
		m.t.Errorf("item %s: the users are %v, want %v", i.id, got, want)
	}
}

// An order that the stream has lost needs units and room under the limit, and a closed
// counter knows of neither.
func TestAClosedCounterTakesNoOrderThatTheStreamLost(t *testing.T) {
	client := labtest.RedisClient(lab.Redis(t))
	defer client.Close() //nolint:errcheck // the test is over
	for closed, want := range map[int]string{0: "RESTORED", 1: "DEAD"} {
		m := newModel(t, client, 1)
		i := m.items["2"]
		m.run("begin", []string{"goods:2", "staged:2"}, 2, 0)
		m.run("page", []string{"goods:2", "users:2", "orders", "staged:2", "marker"}, "a", 1000, 2, "2", 60, 0, "channel", 5, closed, 0)
		e := modelEntry{id: "1-1", fields: map[string]any{
			"goods": 2, "quantity": 1, "epoch": 1, "request": "lost", "order": "lost", "remaining": 0, "at": 0, "replica": "a", "user": "", "ttl": "",
		}}
		at := m.run("clock", []string{"orders"})
		got := m.run("restore", m.entryKeys(i, e), append(append([]any{"ledger", e.id}, m.entryArgs(e)...), "0", "", "", at, 60000)...)
		should.Be(t, fmt.Sprint(got), want, "closed …: the order is answered", closed)
	}
}

// Steps of two items' rebuilds by two owners, with sales, settling, dead letters and new
// epochs in between, in random order.
func TestARebuildInPagesIsExact(t *testing.T) {
	client := labtest.RedisClient(lab.Redis(t))
	defer client.Close() //nolint:errcheck // the test is over
	first := mathrand.Uint64()
	for seed := first; seed < first+15; seed++ {
		m := newModel(t, client, seed)
		for range 4 {
			for range 100 {
				m.act()
			}
			m.assertExact()
		}
		if m.answered == 0 {
			t.Errorf("no purchase was answered")
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// A server that is too old is named, with the minimum, and nothing is sold from it.
func TestARedisThatIsTooOldIsRejected(t *testing.T) {
	client := labtest.RedisClient(lab.Redis(t))
	defer client.Close() //nolint:errcheck // the test is over
	const pretend = `local server = redis
		local redis = setmetatable({call = function(command, section, ...)
			if command == 'INFO' and section == 'server' then return 'redis_version:%s\r\n' end
			return server.call(command, section, ...)
		end}, {__index = server})
	`
	for version, rejected := range map[string]bool{"6.2.14": true, "7.0.0": false, "10.1.0": false} {
		base := "{old-" + rand.Text() + "}:"
		err := client.Eval(t.Context(), fmt.Sprintf(pretend, version)+redisstock.Source(), []string{base + "goods", base + "staged"}, "begin", 1, 0).Err()
		if rejected != (err != nil) || rejected && !strings.Contains(err.Error(), "needs Redis 7.0 or later, and this is 6") {
			t.Errorf("version %s is answered with %v", version, err)
		}
	}
}

package handler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
)

// sequence is what is done to an item of ten units, one step after the other, and the answer to the last.
//
// A step is a verb with the fields of its request, after "k " under one and the same key, and after "! " where it
// is rejected. buy, reserve and basket purchase; extend, confirm, release and return go on with the last purchase
// that was accepted; restock and set change the item, off switches a strategy off. expire has the reservation be
// over, sweep ends it, and archive moves the whole ledger. find looks for the order of the key. # is the number of the item.
type sequence struct {
	name     string
	steps    []string
	status   int
	says     string // the problem, or the state of a reservation
	replayed bool   // and with the number of the first answer
	left     float64
}

const (
	again = true
	anew  = false
)

// What the documents say of a key, a reservation and a return holds also after something else has happened.
func TestOneFeatureAfterAnother(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		serve(t, d).follow(t, d, []sequence{
			// A repeated reservation is answered as it is by then, and its key is used up for ever.
			{"reserved, extended, reserved", []string{"k reserve ttl=60", "extend ttl=600", "k reserve ttl=60"}, 201, "held", again, 9},
			{"reserved, extended, reserved for any time", []string{"k reserve ttl=60", "extend ttl=600", "k reserve"}, 201, "held", again, 9},
			{"reserved, extended, reserved for so long", []string{"k reserve ttl=60", "extend ttl=600", "k reserve ttl=600"}, 422, "key-reused", anew, 9},
			{"reserved, extended, bought", []string{"k reserve ttl=60", "extend ttl=600", "k buy"}, 422, "key-reused", anew, 9},
			{"reserved, confirmed, reserved", []string{"k reserve", "confirm payment_reference=#", "k reserve"}, 201, "confirmed", again, 9},
			{"reserved, confirmed, bought", []string{"k reserve", "confirm payment_reference=#", "k buy"}, 422, "key-reused", anew, 9},
			{"reserved, released, reserved", []string{"k reserve", "release", "k reserve"}, 201, "released", again, 10},
			{"reserved, released, bought", []string{"k reserve", "release", "k buy"}, 422, "key-reused", anew, 10},
			{"reserved, over, reserved", []string{"k reserve", "expire", "k reserve"}, 201, "expired", again, 9},
			{"reserved, expired, reserved", []string{"k reserve", "expire", "sweep", "k reserve"}, 201, "expired", again, 10},
			{"reserved, returned, reserved", []string{"k reserve quantity=2", "confirm payment_reference=#", "return quantity=1", "k reserve quantity=2"}, 201, "confirmed", again, 9},
			{"bought, reserved", []string{"k buy", "k reserve"}, 422, "key-reused", anew, 9},
			{"reserved, found", []string{"k reserve", "find"}, 404, "unknown-order", anew, 9},
			{"reserved, released, found", []string{"k reserve", "release", "find"}, 404, "unknown-order", anew, 10},
			{"reserved, confirmed, found", []string{"k reserve", "confirm payment_reference=#", "find"}, 200, "", anew, 9},

			// Nothing leaves the last three states.
			{"extended, swept, confirmed", []string{"reserve ttl=60", "extend ttl=600", "sweep", "confirm payment_reference=#"}, 200, "confirmed", anew, 9},
			{"over, extended", []string{"reserve", "expire", "extend"}, 409, "reservation-expired", anew, 9},
			{"extended, expired, confirmed", []string{"reserve", "extend", "expire", "sweep", "confirm payment_reference=#"}, 409, "reservation-expired", anew, 10},
			{"expired, restocked, confirmed", []string{"reserve", "expire", "sweep", "restock quantity=5", "confirm payment_reference=#"}, 409, "reservation-expired", anew, 15},
			{"confirmed, returned, released", []string{"reserve", "confirm payment_reference=#", "return", "release"}, 409, "reservation-confirmed", anew, 10},
			{"confirmed, returned, confirmed", []string{"reserve", "confirm payment_reference=#", "return", "confirm payment_reference=#"}, 200, "confirmed", again, 10},
			{"a reference of what was returned", []string{"reserve", "confirm payment_reference=#", "return", "reserve", "confirm payment_reference=#"}, 409, "reference-used", anew, 9},
			{"a reference that came late", []string{"reserve", "release", "! confirm payment_reference=#", "reserve", "confirm payment_reference=#"}, 200, "confirmed", anew, 9},

			// A sale is remembered, and a rejection is not.
			{"bought, returned, bought", []string{"k buy quantity=2", "return", "k buy quantity=2"}, 200, "", again, 10},
			{"bought, sold out, bought", []string{"k buy", "buy quantity=9", "k buy"}, 200, "", again, 0},
			{"bought, restocked, bought", []string{"k buy", "restock quantity=5", "k buy"}, 200, "", again, 14},
			{"bought, restocked, bought more", []string{"k buy", "restock quantity=5", "k buy quantity=2"}, 422, "key-reused", anew, 14},
			{"sold out, restocked, bought", []string{"! k buy quantity=11", "restock quantity=1", "k buy quantity=11"}, 200, "", anew, 0},
			{"sold out, released, bought", []string{"reserve quantity=10", "! k buy", "release", "k buy"}, 200, "", anew, 9},
			{"sold out, expired, bought", []string{"reserve quantity=10", "! k buy", "expire", "sweep", "k buy"}, 200, "", anew, 9},
			{"sold out, returned, reserved", []string{"buy quantity=10", "! k buy", "return quantity=1", "k reserve"}, 201, "held", anew, 0},
			{"returned, all returned, returned", []string{"buy quantity=3", "k return quantity=1", "return", "k return quantity=1"}, 200, "", again, 10},
			{"returned, all that is left of it returned", []string{"buy quantity=3", "k return quantity=1", "k return"}, 200, "", again, 8},
			{"returned, more returned", []string{"buy quantity=3", "k return quantity=1", "k return quantity=2"}, 422, "key-reused", anew, 8},
			{"restocked, bought, restocked", []string{"k restock quantity=5", "k buy", "k restock quantity=5"}, 200, "", anew, 14},

			// A limit counts what is held, and lets buyers keep what they have.
			{"bought, limited, bought", []string{"k buy quantity=2&user_id=u", `set {"per_user": 1}`, "k buy quantity=2&user_id=u"}, 200, "", again, 8},
			{"reserved, limited, reserved", []string{"k reserve quantity=2&user_id=u", `set {"per_user": 1}`, "k reserve quantity=2&user_id=u"}, 201, "held", again, 8},
			{"reserved, limited, extended", []string{"reserve quantity=2&user_id=u", `set {"per_user": 1}`, "extend"}, 200, "held", anew, 8},
			{"reserved, limited, confirmed", []string{"reserve quantity=2&user_id=u", `set {"per_user": 1}`, "confirm payment_reference=#"}, 200, "confirmed", anew, 8},
			{"rejected, limit raised, bought", []string{`set {"per_user": 1}`, "! k buy quantity=2&user_id=u", `set {"per_user": 2}`, "k buy quantity=2&user_id=u"}, 200, "", anew, 8},
			{"extended, bought", []string{`set {"per_user": 2}`, "reserve quantity=2&user_id=u", "extend", "buy user_id=u"}, 409, "user-limit", anew, 8},
			{"over, bought", []string{`set {"per_user": 2}`, "reserve quantity=2&user_id=u", "expire", "buy user_id=u"}, 409, "user-limit", anew, 8},
			{"expired, bought", []string{`set {"per_user": 2}`, "reserve quantity=2&user_id=u", "expire", "sweep", "buy quantity=2&user_id=u"}, 200, "", anew, 8},
			{"released, bought", []string{`set {"per_user": 2}`, "reserve quantity=2&user_id=u", "release", "buy quantity=2&user_id=u"}, 200, "", anew, 8},
			{"returned, bought", []string{`set {"per_user": 2}`, "buy quantity=2&user_id=u", "return quantity=1", "buy user_id=u"}, 200, "", anew, 8},
			{"released, limited, bought", []string{"reserve quantity=2&user_id=u", "release", `set {"per_user": 2}`, "buy quantity=2&user_id=u"}, 200, "", anew, 8},
			{"bought, maximum lowered, bought", []string{"k buy quantity=3", `set {"max_quantity": 2}`, "k buy quantity=3"}, 200, "", again, 7},
			{"rejected, maximum raised, bought", []string{`set {"max_quantity": 2}`, "! k buy quantity=3", `set {"max_quantity": null}`, "k buy quantity=3"}, 200, "", anew, 7},

			// What was sold by one strategy is answered by every other.
			{"bought, sold otherwise, bought", []string{"k buy", `set {"strategy": "mutex"}`, "k buy"}, 200, "", again, 9},
			{"bought by another strategy", []string{"k buy strategy=naive", "k buy strategy=mutex&group=true"}, 200, "", again, 9},
			{"bought, switched off, bought", []string{"k buy strategy=channel", "off channel", "k buy strategy=channel"}, 200, "", again, 9},
			{"reserved, switched off, confirmed", []string{"reserve strategy=sql-optimistic", "off sql-optimistic", "confirm payment_reference=#"}, 200, "confirmed", anew, 9},
			{"reserved, sold otherwise, released", []string{"reserve strategy=sql-bucket", `set {"strategy": "sql-unit"}`, "release"}, 200, "released", anew, 10},

			// The archive is a part of the ledger.
			{"bought, archived, bought", []string{"k buy", "archive", "k buy"}, 200, "", again, 9},
			{"bought, archived, bought more", []string{"k buy", "archive", "k buy quantity=2"}, 422, "key-reused", anew, 9},
			{"bought, archived, reserved", []string{"k buy", "archive", "k reserve"}, 422, "key-reused", anew, 9},
			{"reserved, archived, extended, reserved", []string{"k reserve ttl=60", "archive", "extend ttl=600", "k reserve ttl=60"}, 201, "held", again, 9},
			{"reserved, archived, confirmed, archived, reserved", []string{"k reserve", "archive", "confirm payment_reference=#", "archive", "k reserve"}, 201, "confirmed", again, 9},
			{"reserved, archived, expired, reserved", []string{"k reserve", "archive", "expire", "sweep", "k reserve"}, 201, "expired", again, 10},
			{"reserved, released, archived, reserved", []string{"k reserve ttl=60", "release", "archive", "k reserve ttl=60"}, 201, "released", again, 10},
			{"reserved, released, archived, reserved for longer", []string{"k reserve ttl=60", "release", "archive", "k reserve ttl=90"}, 422, "key-reused", anew, 10},
			{"reserved, expired, archived, confirmed", []string{"reserve", "expire", "sweep", "archive", "confirm payment_reference=#"}, 409, "reservation-expired", anew, 10},
			{"bought, archived, returned, archived, returned", []string{"buy quantity=2", "archive", "k return quantity=1", "archive", "k return quantity=1"}, 200, "", again, 9},
			{"restocked, archived, restocked", []string{"k restock quantity=5", "archive", "k restock quantity=5"}, 200, "", anew, 15},

			// A basket is a purchase as any other, and each of its lines an order.
			{"basket, returned, basket", []string{"k basket lines=#:2", "return", "k basket lines=#:2"}, 201, "", again, 10},
			{"basket, restocked, basket", []string{"! k basket lines=#:11", "restock quantity=1", "k basket lines=#:11"}, 201, "", anew, 0},
			{"basket, limited, basket", []string{"k basket lines=#:2&user_id=u", `set {"per_user": 1}`, "k basket lines=#:2&user_id=u"}, 201, "", again, 8},
			{"basket, archived, basket", []string{"k basket lines=#:2", "archive", "k basket lines=#:2"}, 201, "", again, 8},
			{"basket, rejected, archived, basket", []string{"! k basket lines=1:1,#:11", "archive", "restock quantity=1", "k basket lines=1:1,#:11"}, 201, "", anew, 0},
			{"basket, rejected, found", []string{"! k basket lines=#:11", "! k basket lines=#:11", "restock quantity=1", "k basket lines=#:11", "find"}, 200, "", anew, 0},
			{"basket, larger basket", []string{"k basket lines=#:2", "k basket lines=#:3"}, 422, "key-reused", anew, 8},
			{"basket, basket with more", []string{"k basket lines=#:2", "k basket lines=#:2,1:1"}, 422, "key-reused", anew, 8},
			{"basket, basket without it", []string{"k basket lines=#:2,1:1", "k basket lines=#:2"}, 422, "key-reused", anew, 8},
			{"basket, bought", []string{"k basket lines=#:2", "k buy quantity=2"}, 422, "key-reused", anew, 8},
			{"bought, basket", []string{"k buy quantity=2", "k basket lines=#:2"}, 422, "key-reused", anew, 8},
			{"reserved, basket", []string{"k reserve quantity=2", "k basket lines=#:2"}, 422, "key-reused", anew, 8},
			{"basket, released", []string{"basket lines=#:2", "release"}, 409, "reservation-confirmed", anew, 8},
		})
	})
}

// What redis-stock has accepted is one purchase also before the ledger has it.
func TestOneFeatureAfterAnotherInRedis(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveRedisStock(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), redisstock.Options{Linger: time.Millisecond, Partitions: 2})
	a.follow(t, d, []sequence{
		{"bought, sold otherwise, bought", []string{`set {"strategy": "redis-stock"}`, "k buy", `set {"strategy": "mutex"}`, "k buy durable=sql"}, 200, "", again, 9},
		{"bought, limited, bought", []string{`set {"strategy": "redis-stock"}`, "k buy quantity=2&user_id=u", `set {"per_user": 1}`, "k buy quantity=2&user_id=u"}, 200, "", again, 8},
		{"bought, sold out, bought", []string{`set {"strategy": "redis-stock"}`, "k buy", "buy quantity=9", "k buy"}, 200, "", again, 0},
		{"sold out, restocked, bought", []string{`set {"strategy": "redis-stock"}`, "! k buy quantity=11", "restock quantity=1", "k buy quantity=11"}, 200, "", anew, 0},
		{"reserved, released, bought", []string{`set {"strategy": "redis-stock"}`, "reserve quantity=10", "! k buy", "release", "k buy durable=sql"}, 200, "", anew, 9},
		{"reserved, extended, bought", []string{`set {"strategy": "redis-stock"}`, "k reserve", "extend", "k buy"}, 422, "key-reused", anew, 9},
		{"limit raised, bought", []string{`set {"strategy": "redis-stock", "per_user": 1}`, "! k buy quantity=2&user_id=u", `set {"per_user": 2}`, "k buy quantity=2&user_id=u"}, 200, "", anew, 8},
		{"bought, maximum lowered, bought", []string{`set {"strategy": "redis-stock"}`, "k buy quantity=3", `set {"max_quantity": 2}`, "k buy quantity=3"}, 200, "", again, 7},
		{"returned, bought", []string{`set {"strategy": "redis-stock", "per_user": 2}`, "buy quantity=2&user_id=u&durable=sql", "return", "buy quantity=2&user_id=u"}, 200, "", anew, 8},
	})
}

// follow takes each sequence with an item of its own.
func (a api) follow(t *testing.T, d *servers.Database, sequences []sequence) {
	t.Helper()
	pool, _, err := d.Pool(1, time.Second)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	for i, s := range sequences {
		t.Run(s.name, func(t *testing.T) {
			item := fmt.Sprint(i + 2)
			a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": `+item+`, "stock": 10}`, http.StatusCreated)
			var got answer
			var number, first string // of the last purchase, and of the first answer under the key
			var verb, fields string
			for at, step := range s.steps {
				step, rejected := strings.CutPrefix(strings.ReplaceAll(step, "#", item), "! ")
				step, keyed := strings.CutPrefix(step, "k ")
				verb, fields, _ = strings.Cut(step, " ")
				switch verb {
				case "archive":
					labtest.Archive(t, d, a.store)
					continue
				case "expire":
					must.Get(pool.ExecContext(t.Context(), `UPDATE tb_reservation SET expires_at = '2001-01-01 00:00:00' WHERE number = ?`, number))(t)
					continue
				case "sweep":
					must.Get(a.options.Reservations.Expire(t.Context()))(t)
					continue
				}
				r := a.stepOf(t, verb, fields, item, number)
				if keyed {
					r.Header.Set("Idempotency-Key", "key-"+item)
				}
				got = send(t, r)
				if last := at == len(s.steps)-1; !last && (got.status >= http.StatusBadRequest) != rejected {
					t.Fatalf("%s is answered with %d %s", step, got.status, got.text)
				}
				if of := got.number(); of != "" {
					number = of
					if keyed && first == "" {
						first = of
					}
				}
			}
			said := got.problem()
			if state, ok := got.body["state"].(string); ok {
				said = state
			}
			if replayed := got.header.Get("Idempotency-Replayed") == "true"; got.status != s.status || said != s.says || replayed != s.replayed {
				t.Errorf("answered with %d %s, replayed %v, want %d %s, %v: %s", got.status, said, replayed, s.status, s.says, s.replayed, got.text)
			}
			if of := got.number(); (s.replayed || of != "" && verb == "find") && first != "" && of != first {
				t.Errorf("answered with number %s, and %s at first", of, first)
			}
			var audit answer
			labtest.Eventually(10*time.Second, func() bool { // an order of redis-stock may be pending
				audit = a.asAdmin(t, http.MethodGet, "/goods/"+item+"/audit?full=true", "", http.StatusOK)
				return audit.body["clean"] == true && audit.body["stock"] == s.left
			})
			audit.is(t, "", "clean", true, "stock", s.left)
		})
	}
}

// stepOf is the request of a step.
func (a api) stepOf(t *testing.T, verb, fields, item, number string) *http.Request {
	t.Helper()
	public := func(path, query string) *http.Request {
		return request(t, http.MethodPost, a.public.URL+path+query, "", "")
	}
	asAdmin := func(method, path, body string) *http.Request {
		r := request(t, method, a.admin.URL+path, jsonType, body)
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	switch verb {
	case "buy":
		return public("/deduct?goods_id="+item+"&", fields)
	case "reserve":
		return public("/reservations?goods_id="+item+"&", fields)
	case "basket":
		return public("/orders?", fields)
	case "extend", "confirm", "release":
		return public("/reservations/"+number+"/"+verb+"?", fields)
	case "return":
		return asAdmin(http.MethodPost, "/orders/"+number+"/return?"+fields, "")
	case "find":
		return request(t, http.MethodGet, a.public.URL+"/orders?request_id=key-"+item, "", "")
	case "restock":
		return asAdmin(http.MethodPost, "/goods/"+item+"/restock?"+fields, "")
	case "set":
		return asAdmin(http.MethodPatch, "/goods/"+item, fields)
	case "off":
		return asAdmin(http.MethodPut, "/strategies/"+fields, `{"enabled": false, "reason": "a test"}`)
	default:
		t.Fatalf("there is no step %q", verb)
		return nil
	}
}

// number is that of a purchase that was accepted: of a reservation, of an order, or of the first line of a basket.
func (a answer) number() string {
	if lines, ok := a.body["lines"].([]any); ok && len(lines) > 0 {
		line, _ := lines[0].(map[string]any)
		return fmt.Sprint(line["order_id"])
	}
	for _, name := range []string{"reservation_id", "order_id"} {
		if number, ok := a.body[name].(string); ok {
			return number
		}
	}
	return ""
}

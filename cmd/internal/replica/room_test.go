package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

func TestTheConfigurationOpensAWaitingRoom(t *testing.T) {
	k := labtest.StartSupervisor(t)
	redis := labtest.Own(t, k, "redis", servers.StartRedis, servers.Local)
	r := runs(t, Options{}, append(redis.Conn().Env(), "STOCKD_QUEUE_ITEMS=1,7", "STOCKD_QUEUE_SECRET="+strings.Repeat("secret", 6))...)
	for _, id := range []int64{1, 2} {
		must.Get(r.Create(t.Context(), client.NewItem{GoodsID: id, Stock: 5}))(t)
	}
	buyer := client.Purchase{GoodsID: 1, UserID: "u"}
	should.Reject(r.Queue(t.Context(), client.Purchase{GoodsID: 2, UserID: "u"}))(t, client.ErrNoRoom)
	should.Reject(r.Ticket(t.Context(), "none"))(t, client.ErrUnknownTicket)
	should.Reject(r.Deduct(t.Context(), buyer))(t, client.ErrNotAdmitted)
	place := must.Get(r.Queue(t.Context(), buyer))(t)
	if place.State != client.Waiting || place.Place != 1 || place.Wait > time.Second || place.AskAfter < time.Second {
		t.Errorf("the first has %+v", place)
	}
	if !labtest.Eventually(10*time.Second, func() bool {
		place = must.Get(r.Ticket(t.Context(), place.Ticket))(t)
		return place.State == client.Admitted
	}) {
		t.Fatalf("it is not admitted: %+v", place)
	}
	if left := time.Until(place.AdmittedUntil); left < 4*time.Minute || left > 5*time.Minute {
		t.Errorf("it is admitted for %s", left)
	}
	should.Contain(t, r.scrape(t), `stockd_room_buyers{state="waiting"} 0`, `stockd_room_buyers{state="admitted"} 1`)
	should.Be(t, must.Get(r.CountLine(t.Context(), 1))(t), (client.LineCount{Admitted: 1, Admissions: 1}), "the line is")
	should.Reject(r.CountLine(t.Context(), 2))(t, client.ErrNoRoom)
	must.Get(r.Deduct(t.Context(), buyer))(t)
	should.Reject(r.Deduct(t.Context(), buyer))(t, client.ErrNotAdmitted)
}

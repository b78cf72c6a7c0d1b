package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Ticket is a place in the line of an item that has a waiting room.
type Ticket struct {
	Ticket  string `json:"ticket"`
	GoodsID int64  `json:"goods_id"`
	// State is Waiting, Admitted, Closed or Ended.
	State string `json:"state"`
	// Place is 1 for who is admitted next, and Wait about how long that takes; 0 means unknown.
	Place int64         `json:"place"`
	Wait  time.Duration `json:"wait"`
	// AskAfter is when to ask again; 0 means that nothing will change.
	AskAfter time.Duration `json:"ask_after"`
	// AdmittedUntil is until when the buyer may buy, once.
	AdmittedUntil time.Time `json:"admitted_until"`
}

func (t *Ticket) id() string { return t.Ticket }

// UnmarshalJSON reads times in seconds.
func (t *Ticket) UnmarshalJSON(answer []byte) error {
	type fields Ticket
	err := json.Unmarshal(answer, (*fields)(t))
	for _, d := range []*time.Duration{&t.Wait, &t.AskAfter} {
		*d *= time.Duration(time.Second.Nanoseconds())
	}
	return err
}

// The states of a Ticket.
const (
	Waiting  = "waiting"
	Admitted = "admitted"
	Closed   = "closed" // nothing can be sold now; asking keeps the place, because units may come back
	Ended    = "ended"  // the buyer has left, has bought, or was too late; or the line was lost: Queue joins again
)

// Queue joins the line of the item of a purchase, for its buyer, who keeps a place that it has already.
// ErrNoRoom: the item needs no admission.
func (c Client) Queue(ctx context.Context, p Purchase) (Ticket, error) {
	return answer[Ticket](ctx, c, c.asBuyer(http.MethodPost, "/queue").with(Purchase{GoodsID: p.GoodsID, UserID: p.UserID}))
}

// LineCount is the line of an item, for those who run the sale.
type LineCount struct {
	Waiting  int64 `json:"waiting"`
	Admitted int64 `json:"admitted"`
	// Admissions and Left are the buyers who were admitted, and who have left before, since the line began.
	Admissions int64 `json:"admissions"`
	Left       int64 `json:"left"`
	// Wait is how many seconds one that joins now waits at the present pace; 0 means unknown, or that no one waits.
	Wait int64 `json:"wait"`
}

// CountLine counts the line of an item, on the admin API. ErrNoRoom: the item has none.
func (c Client) CountLine(ctx context.Context, goodsID int64) (LineCount, error) {
	return answer[LineCount](ctx, c, c.asAdmin(http.MethodGet, goodsPath(goodsID)+"/queue"))
}

// Ticket is what has become of a ticket. Asking keeps the place. ErrUnknownTicket: the shop has not given it.
func (c Client) Ticket(ctx context.Context, ticket string) (Ticket, error) {
	return answer[Ticket](ctx, c, c.asBuyer(http.MethodGet, "/queue/"+url.PathEscape(ticket)))
}

package servers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func TestAProxyPassesOnWhatIsSaid(t *testing.T) {
	_, far, near := through(t)
	large := strings.Repeat("x", 1<<20)
	must.Do(t, far.Set(t.Context(), "large", large, 0).Err())
	if got := near.Get(t.Context(), "large").Val(); got != large {
		t.Errorf("%d bytes arrived of %d", len(got), len(large))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				should.Do(t, far.Incr(t.Context(), "n").Err())
			}
		})
	}
	all.Wait()
	if n, err := near.Get(t.Context(), "n").Int(); err != nil || n != 1600 {
		t.Errorf("it counts %d: %v", n, err)
	}
}

// Whether the server has acted is what tells a lost request from a lost reply.
func TestWhatIsLost(t *testing.T) {
	for do, want := range map[servers.Action]int{servers.Lose: 0, servers.LoseReply: 1, servers.HangReply: 1} {
		t.Run(string(do), func(t *testing.T) {
			p, far, near := through(t)
			must.Do(t, far.Ping(t.Context()).Err())
			point := p.Arm(servers.Rule{Sent: "incr", Do: do})
			err := far.Incr(within(t, 2*time.Second), "n").Err()
			if err == nil || errors.Is(err, context.DeadlineExceeded) != (do == servers.HangReply) && !strings.Contains(err.Error(), "timeout") {
				t.Errorf("the client gets %v", err)
			}
			must.Do(t, point.Wait(within(t, limit)))
			n, _ := near.Get(t.Context(), "n").Int()
			should.Be(t, n, want, "how often the server has acted")
			if n, err := far.Incr(t.Context(), "n").Result(); err != nil || int(n) != want+1 {
				t.Errorf("then it counts %d: %v", n, err)
			}
		})
	}
}

// The owner of a lock checks that it is the owner, loses it, and deletes what is
// another's: the order of the three is no matter of luck.
func TestAHeldRequestComesAfterWhatOthersDo(t *testing.T) {
	p, far, near := through(t)
	const ttl = 100 * time.Millisecond
	must.Do(t, far.Set(t.Context(), "lock", "mine", ttl).Err())
	point := p.Arm(servers.Rule{Sent: "del\r\n$4\r\nlock", Do: servers.Hold})
	released := later(func() error {
		if owner := far.Get(t.Context(), "lock").Val(); owner != "mine" {
			return fmt.Errorf("it is %q", owner)
		}
		return far.Del(t.Context(), "lock").Err()
	})
	must.Do(t, point.Wait(within(t, limit)))
	for !near.SetNX(t.Context(), "lock", "theirs", time.Minute).Val() {
		time.Sleep(time.Millisecond)
	}
	pending(t, released, "the release")
	point.Pass()
	must.Do(t, ended(t, released))
	should.Be(t, near.Exists(t.Context(), "lock").Val(), 0, "the lock of the other is there: the request came before it")
}

func TestAHeldReplyComesAfterTheServerHasActed(t *testing.T) {
	p, far, near := through(t)
	point := p.Arm(servers.Rule{Sent: "incr", Do: servers.HoldReply})
	done := later(func() error { return far.Incr(t.Context(), "n").Err() })
	must.Do(t, point.Wait(within(t, limit)))
	if n, err := near.Get(t.Context(), "n").Int(); err != nil || n != 1 {
		t.Errorf("the server has counted %d: %v", n, err)
	}
	pending(t, done, "the request")
	point.Pass()
	must.Do(t, ended(t, done))
}

// What is on its way arrives, also where its client has given up.
func TestAHeldRequestArrivesAfterItsClientHasHungUp(t *testing.T) {
	p, far, near := through(t)
	point := p.Arm(servers.Rule{Sent: "incr", Do: servers.Hold})
	ctx, hangUp := context.WithCancel(t.Context())
	done := later(func() error { return far.Incr(ctx, "n").Err() })
	must.Do(t, point.Wait(within(t, limit)))
	hangUp()
	if err := ended(t, done); err == nil {
		t.Error("a held request was answered")
	}
	should.Be(t, near.Exists(t.Context(), "n").Val(), 0, "it came while it was held")
	point.Pass()
	for end := time.Now().Add(limit); near.Exists(t.Context(), "n").Val() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come")
		}
	}
}

func TestARequestIsHeldForAsLongAsWasSaid(t *testing.T) {
	const held = time.Second
	p, far, _ := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	p.Arm(servers.Rule{Sent: "incr", Do: servers.Hold, For: held})
	start := time.Now()
	must.Do(t, far.Incr(t.Context(), "n").Err())
	if took := time.Since(start); took < held || took > 3*held {
		t.Errorf("it took %s, want %s", took, held)
	}
	start = time.Now()
	must.Do(t, far.Incr(t.Context(), "n").Err())
	if took := time.Since(start); took > held/2 {
		t.Errorf("the next one took %s", took)
	}
}

func TestARuleActsAtTheNthTimeAndOnce(t *testing.T) {
	p, far, near := through(t)
	// What ends one request is not counted again with the next one.
	count, point := p.Arm(servers.Rule{Sent: "incr\r\n$1\r\nn\r\n", Do: servers.Count}), p.Arm(servers.Rule{Sent: "incr", Nth: 3, Do: servers.Lose})
	for i := 1; i <= 5; i++ {
		if err := far.Incr(t.Context(), "n").Err(); (err != nil) != (i == 3) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if n, _ := near.Get(t.Context(), "n").Int(); n != 4 || point.Seen() != 3 || count.Seen() != 5 {
		t.Errorf("the server counts %d, the rule %d, and the one that counts %d", n, point.Seen(), count.Seen())
	}
	if !point.Disarm() || count.Disarm() {
		t.Error("a rule does not know whether it was met")
	}
	taken := p.Arm(servers.Rule{Sent: "incr", Do: servers.Lose})
	if taken.Disarm() {
		t.Error("a rule was met by nothing")
	}
	must.Do(t, far.Incr(t.Context(), "n").Err())
}

// Of two rules that one request meets, the older acts, and the other waits for the next one.
func TestTheOlderOfTwoRulesActs(t *testing.T) {
	p, far, near := through(t)
	older, newer := p.Arm(servers.Rule{Sent: "incr", Do: servers.LoseReply}), p.Arm(servers.Rule{Sent: "incr", Do: servers.Lose})
	for i := range 2 {
		if err := far.Incr(t.Context(), "n").Err(); err == nil {
			t.Errorf("request %d is answered", i+1)
		}
		if n, err := near.Get(t.Context(), "n").Int(); err != nil || n != 1 {
			t.Errorf("after request %d the server has acted %d times (%v), want once", i+1, n, err)
		}
	}
	if !older.Disarm() || !newer.Disarm() {
		t.Error("a rule was not met")
	}
}

// A rule that counts sees the bytes, any other one the requests with them.
func TestARequestIsOneHoweverOftenTheBytesAreInIt(t *testing.T) {
	p, far, _ := through(t)
	count, second := p.Arm(servers.Rule{Sent: "twice", Do: servers.Count}), p.Arm(servers.Rule{Sent: "twice", Nth: 2, Do: servers.Lose})
	must.Do(t, far.MSet(t.Context(), "twice-1", "", "twice-2", "").Err())
	if count.Seen() != 2 || second.Seen() != 1 {
		t.Errorf("they have seen %d and %d, want 2 and 1", count.Seen(), second.Seen())
	}
	if err := far.MSet(t.Context(), "twice-1", "", "twice-2", "").Err(); err == nil {
		t.Error("the second request is answered")
	}
}

// A rule that is passed before holds nothing, and one that is disarmed lets go what it holds.
func TestWhatIsPassedOrDisarmedIsNotHeld(t *testing.T) {
	p, far, _ := through(t)
	p.Arm(servers.Rule{Sent: "incr", Do: servers.Hold}).Pass()
	must.Do(t, far.Incr(within(t, limit), "n").Err())
	point := p.Arm(servers.Rule{Sent: "incr", Do: servers.Hold})
	done := later(func() error { return far.Incr(t.Context(), "n").Err() })
	must.Do(t, point.Wait(within(t, limit)))
	if !point.Disarm() {
		t.Error("a rule was met by nothing")
	}
	must.Do(t, ended(t, done))
}

// There is no answer that could be lost: the connection ends all the same.
func TestALostReplyOfASilentServerEndsTheConnection(t *testing.T) {
	p, far, _ := through(t)
	point := p.Arm(servers.Rule{Sent: "blpop", Do: servers.LoseReply})
	if err := far.BLPop(within(t, limit), 0, "none").Err(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client gets %v", err)
	}
	must.Do(t, point.Wait(within(t, limit)))
}

// TCP knows no requests: what is looked for may come in pieces.
func TestARequestIsKnownThoughItComesInPieces(t *testing.T) {
	p, _, near := through(t)
	conn := must.Get(net.Dial("tcp", p.Address))(t)
	defer conn.Close() //nolint:errcheck // it is cut
	point := p.Arm(servers.Rule{Sent: "incr n", Do: servers.Lose})
	auth := near.Options().Password
	for _, piece := range []string{"auth " + auth + "\r\nping\r\nin", "c", "r", " n", "\r\n"} {
		if _, err := io.WriteString(conn, piece); err != nil {
			break // it was cut
		}
		time.Sleep(20 * time.Millisecond) // or the kernel would put the pieces together
	}
	must.Do(t, point.Wait(within(t, limit)))
	should.Be(t, near.Exists(t.Context(), "n").Val(), 0, "the server got it")
}

func TestALinkIsCutAndMended(t *testing.T) {
	p, far, _ := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	for range 3 {
		p.Cut()
		if _, err := net.Dial("tcp", p.Address); err == nil {
			t.Fatal("a link that is cut lets itself be made")
		}
		if err := far.Ping(t.Context()).Err(); err == nil {
			t.Fatal("a link that is cut passes what is said")
		}
		must.Do(t, p.Mend())
		must.Do(t, p.Mend())
		must.Do(t, far.Ping(t.Context()).Err())
	}
	before := far.ClientID(t.Context()).Val()
	p.Break()
	_ = far.Ping(t.Context()) // the client may not have noticed yet
	if now, err := far.ClientID(t.Context()).Result(); err != nil || now == before {
		t.Errorf("the connection of before is %d, and there is %d: %v", before, now, err)
	}
	p.Close()
	p.Close()
}

func TestASlowLinkTakesLongerEachWay(t *testing.T) {
	const each = 500 * time.Millisecond
	p, far, _ := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	took := func() time.Duration {
		start := time.Now()
		must.Do(t, far.Ping(t.Context()).Err())
		return time.Since(start)
	}
	p.Slow(each)
	if d := took(); d < 2*each || d > 4*each {
		t.Errorf("there and back took %s, want %s", d, 2*each)
	}
	p.Slow(0)
	if d := took(); d > each {
		t.Errorf("a link that is not slow any more took %s", d)
	}
}

func TestAHangingLinkIsMadeAndPassesNothing(t *testing.T) {
	p, far, near := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	p.Hang(true)
	for range 2 {
		if err := far.Incr(within(t, 100*time.Millisecond), "n").Err(); err == nil {
			t.Error("a hung link answers")
		}
	}
	p.Hang(false)
	must.Do(t, far.Ping(t.Context()).Err())
	should.Be(t, near.Exists(t.Context(), "n").Val(), 0, "the server received what was sent on a hung link")
}

func TestAFrozenLinkLosesNothing(t *testing.T) {
	p, far, near := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	p.Freeze()
	p.Freeze()
	done := later(func() error { return far.Incr(t.Context(), "n").Err() })
	pending(t, done, "the request")
	should.Be(t, near.Exists(t.Context(), "n").Val(), 0, "it came through the ice")
	p.Thaw()
	p.Thaw()
	must.Do(t, ended(t, done))
}

func TestFrozenRepliesArriveAfterTheServerActed(t *testing.T) {
	p, far, near := through(t)
	must.Do(t, far.Ping(t.Context()).Err())
	p.FreezeReplies()
	done := later(func() error { return far.Incr(t.Context(), "n").Err() })
	pending(t, done, "the reply")
	should.Be(t, near.Get(t.Context(), "n").Val(), "1", "how often the server has acted")
	p.Thaw()
	must.Do(t, ended(t, done))
}

func TestALinkIsRedirected(t *testing.T) {
	p, far, near := through(t)
	must.Do(t, near.Set(t.Context(), "name", "first", 0).Err())
	password := near.Options().Password
	other := lab.OwnRedis(t)
	direct := open(t, other)
	must.Do(t, direct.ACLSetUser(t.Context(), "default", ">"+password).Err())
	must.Do(t, direct.Set(t.Context(), "name", "second", 0).Err())
	must.Do(t, p.Redirect(other.Address))
	_ = far.Ping(t.Context()) // a connection of before is gone
	should.Be(t, far.Get(t.Context(), "name").Val(), "second", "behind the link is the")
}

// Whatever is held or frozen, a proxy that is closed holds nothing up.
func TestAClosedProxyEndsEverything(t *testing.T) {
	p, far, _ := through(t)
	point := p.Arm(servers.Rule{Sent: "incr", Do: servers.Hold})
	held := later(func() error { return far.Incr(t.Context(), "n").Err() })
	must.Do(t, point.Wait(within(t, limit)))
	p.Freeze()
	frozen := later(func() error { return far.Ping(t.Context()).Err() })
	pending(t, frozen, "the frozen request")
	p.Close()
	for _, done := range []<-chan error{held, frozen} {
		if ended(t, done) == nil {
			t.Error("a closed proxy answers")
		}
	}
}

func TestAServerThatIsNotThereEndsTheConnection(t *testing.T) {
	p := labtest.NewProxy(t, "127.0.0.1:1")
	client := redis.NewClient(&redis.Options{Addr: p.Address, MaxRetries: -1, DialerRetries: 1})
	defer client.Close() //nolint:errcheck // it never had a connection
	if err := client.Ping(within(t, limit)).Err(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client gets %v", err)
	}
}

// A client of MySQL sends a statement that it has prepared by its number. A rule knows it by its text all the same, and
// does not take its preparation for it.
func TestARuleKnowsAPreparedStatement(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		far, way := labtest.Through(t, d)
		db, _ := labtest.Connect(t, far)
		defer db.Close() //nolint:errcheck // nothing is lost with it
		conn := must.Get(db.Conn(t.Context()))(t)
		count := way.Arm(servers.Rule{Sent: "SELECT ? + 1", Do: servers.Count})
		first := must.Get(conn.PrepareContext(t.Context(), "SELECT ? + 1"))(t)
		defer first.Close() //nolint:errcheck // the link ends before
		other := must.Get(conn.PrepareContext(t.Context(), "SELECT ? + 2"))(t)
		defer other.Close() //nolint:errcheck // the same
		should.Be(t, count.Seen(), 0, "how often its preparation counts")
		for i := range 3 {
			var n int
			must.Do(t, first.QueryRowContext(t.Context(), i).Scan(&n))
			must.Do(t, other.QueryRowContext(t.Context(), i).Scan(&n))
			should.Be(t, n, i+2, "… + 2 is", i)
		}
		should.Be(t, count.Seen(), 3, "how often it was seen")
		lost := way.Arm(servers.Rule{Sent: "SELECT ? + 2", Do: servers.LoseReply})
		var n int
		must.Do(t, first.QueryRowContext(t.Context(), 1).Scan(&n))
		if err := other.QueryRowContext(t.Context(), 1).Scan(&n); err == nil {
			t.Error("the reply is there, which was to be lost")
		}
		if !lost.Disarm() {
			t.Error("the rule was not met")
		}
	})
}

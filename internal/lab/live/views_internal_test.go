package live

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// rowOf is the row of a table whose first cell ends so.
func rowOf(t *testing.T, table Table, end string) []string {
	t.Helper()
	for _, row := range table.Rows {
		if strings.HasSuffix(row[0], end) {
			return row
		}
	}
	t.Fatalf("%s has no row …%s: %q", table.Title, end, table.Rows)
	return nil
}

// Which masters have whose value stands side by side, and one that does not answer has no vote.
func TestVotesOfTheMastersStandSideBySide(t *testing.T) {
	masters := lab.OwnRedlock(t)
	lens := must.Get(lensOf(&servers.Backends{Redlock: masters}, "redlock"))(t)
	defer lens.close() //nolint:errcheck // the test is over
	for i, node := range masters.Nodes {
		client := node.Open()
		value := "mine"
		if i > 2 {
			value = "another's"
		}
		must.Do(t, client.Set(t.Context(), "lock:{goods%2F7}", value, time.Minute).Err())
		must.Do(t, client.Set(t.Context(), "lock:{goods%2F17}", "of another item", time.Minute).Err())
		_ = client.Close()
	}
	want := func(rows ...[]string) {
		t.Helper()
		view := must.Get(lens.look(t.Context(), 7))(t)
		if got := view.Tables[0]; got.Title != "votes" || !reflect.DeepEqual(got.Rows, rows) {
			t.Errorf("the votes are %q, want %q", got.Rows, rows)
		}
		should.Be(t, len(view.Tables), 6, "tables, the votes and one a master")
	}
	const key = "lock:{goods%2F7}"
	want([]string{key, "mine", "yes", "yes", "yes", "no", "no", "3 of 5"}, []string{key, "another's", "no", "no", "no", "yes", "yes", "2 of 5"})
	must.Do(t, masters.Nodes[1].Kill(t.Context()))
	want([]string{key, "mine", "yes", "?", "yes", "no", "no", "2 of 5"}, []string{key, "another's", "no", "?", "no", "yes", "yes", "2 of 5"})
}

// ZooKeeper itself is asked who watches whom.
func TestANodeShowsTheSessionThatWatchesIt(t *testing.T) {
	server := lab.ZooKeeper(t)
	conn := must.Get(servers.OpenZooKeeper(10*time.Second, server.Address))(t)
	defer conn.Close()
	path := ""
	for _, part := range []string{"stockd", "zk-sequential", "goods%2F7"} {
		path += "/" + part
		must.Get(conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	}
	for _, name := range []string{"a-0000000001", "b-0000000002"} {
		must.Get(conn.Create(path+"/"+name, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
	}
	if _, _, _, err := conn.ExistsW(path + "/a-0000000001"); err != nil {
		t.Fatal(err)
	}
	lens := must.Get(lensOf(&servers.Backends{ZooKeeper: server}, "zookeeper"))(t)
	defer lens.close() //nolint:errcheck // the test is over
	view := must.Get(lens.look(t.Context(), 7))(t)
	session := fmt.Sprintf("%#x", conn.SessionID())
	if row := rowOf(t, view.Tables[0], "a-0000000001"); row[1] != session || row[2] != session {
		t.Errorf("the first node is %q: want it of and watched by %s", row, session)
	}
	if row := rowOf(t, view.Tables[0], "b-0000000002"); row[1] != session || row[2] != "" {
		t.Errorf("the second node is %q: want it of %s, and watched by no one", row, session)
	}
}

// The line of an item has its own keys alone, in the order in which they were made.
func TestALineInEtcdIsOfOneItem(t *testing.T) {
	server := lab.OwnEtcd(t)
	client := must.Get(server.Open())(t)
	defer client.Close() //nolint:errcheck // the test is over
	lease := must.Get(client.Grant(t.Context(), 60))(t)
	for _, key := range []string{"goods%2F1/2b-1", "goods%2F2/9-2", "goods%2F22/1-1", "goods%2F2/1-1"} {
		must.Get(client.Put(t.Context(), "stockd/etcd/"+key, "", clientv3.WithLease(lease.ID)))(t)
	}
	lens := must.Get(lensOf(&servers.Backends{Etcd: server}, "etcd"))(t)
	defer lens.close() //nolint:errcheck // the test is over
	view := must.Get(lens.look(t.Context(), 2))(t)
	line := make([]string, 0, 2)
	for _, row := range view.Tables[0].Rows {
		line = append(line, row[0]+" "+row[1])
		if row[3] != fmt.Sprintf("%x", int64(lease.ID)) || !strings.HasSuffix(row[4], " of 60") {
			t.Errorf("%s has lease %s with %s s", row[1], row[3], row[4])
		}
	}
	if want := []string{"1 stockd/etcd/goods%2F2/9-2", "2 stockd/etcd/goods%2F2/1-1"}; !reflect.DeepEqual(line, want) {
		t.Errorf("in line are %q, want %q", line, want)
	}
}

// A ZooKeeper that does not allow the word says so, and so does the page.
func TestAZooKeeperThatDoesNotTellItsWatchesIsNoted(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close() //nolint:errcheck // the test is over
	for _, c := range []struct {
		says     string
		watchers int
		notes    []string
	}{
		{"wchp is not executed because it is not in the whitelist.\n", 0, []string{"wchp"}},
		{"/a\n\t0x1\n", 1, nil},
		{"", 0, nil}, // there is no watch
	} {
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, len("wchp")))
			_, _ = io.WriteString(conn, c.says)
			_ = conn.Close()
		}()
		watchers, notes, err := watched(t.Context(), &servers.ZooKeeper{Address: listener.Addr().String()})
		if err != nil || len(watchers) != c.watchers || !slices.Equal(notes, c.notes) {
			t.Errorf("after %q: %v, %q, %v", c.says, watchers, notes, err)
		}
	}
}

// A class looks at a server as one page does: otherwise it would change the sale that it watches.
func TestAViewIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := &lens{look: func(context.Context, int64) (View, error) {
			asked++
			return View{}, nil
		}}
		for range 10 {
			l.see(t.Context(), 1)
		}
		l.see(t.Context(), 2) // of the next sale
		time.Sleep(viewFor)
		l.see(t.Context(), 2)
		should.Be(t, asked, 3, "questions to the server")
	})
}

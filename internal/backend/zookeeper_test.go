package backend_test

import (
	crypto "crypto/rand"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
)

// What the server has been asked it may answer before the goodbye: until then the call is under
// way, and an answer that came later would be written into what the call has returned.
func TestZKACloseWaitsForTheAnswersUnderWay(t *testing.T) {
	way := labtest.NewProxy(t, lab.ZooKeeper(t).Address)
	client := backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{way.Address}})
	t.Cleanup(client.Close)
	link := must.Get(client.Connected(t.Context()))(t)
	path := "/" + crypto.Text()
	held := way.Arm(servers.Rule{Sent: path, Do: servers.Hold})
	defer held.Pass()
	made := make(chan error, 1)
	go func() {
		made <- backend.ZKDo(t.Context(), link, func(conn *zk.Conn) error {
			_, err := conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			return err
		})
	}()
	labtest.AwaitReached(t, held)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	<-link.Ctx.Done()
	select {
	case err := <-made:
		t.Fatalf("the close ended a call under way: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	held.Pass()
	must.Do(t, <-made)
	<-closed
}

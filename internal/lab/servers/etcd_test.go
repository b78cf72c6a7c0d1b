package servers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/servers"
)

func etcdClient(t *testing.T, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	client, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // it says that its context has ended
	return client
}

func TestEtcdKeepsItsDataOverAKill(t *testing.T) {
	e := lab.OwnEtcd(t)
	if e.Name != "etcd" || !strings.HasPrefix(e.Version, "3.") {
		t.Errorf("it is %+v", e.Info)
	}
	client, endpoint := etcdClient(t, e), e.Endpoint
	if _, err := client.Put(within(t, 5*time.Second), "kept", "value"); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(within(t, 300*time.Millisecond), "kept"); err == nil {
		t.Error("a killed server answers")
	}
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Endpoint != endpoint {
		t.Errorf("it is at %s, and was at %s", e.Endpoint, endpoint)
	}
	kept, err := etcdClient(t, e).Get(within(t, 5*time.Second), "kept")
	if err != nil || kept.Count != 1 || string(kept.Kvs[0].Value) != "value" {
		t.Errorf("the key of before the kill: %v, %v", kept, err)
	}
}

// A second is the shortest lease that etcd can grant, and it does.
func TestEtcdGrantsALeaseOfASecond(t *testing.T) {
	e := lab.OwnEtcd(t)
	lease, err := etcdClient(t, e).Grant(within(t, 5*time.Second), 1)
	if err != nil || lease.TTL != 1 {
		t.Errorf("granted is %+v: %v", lease, err)
	}
}

func TestAPausedEtcdAnswersWhenItIsResumed(t *testing.T) {
	e := lab.OwnEtcd(t)
	client := etcdClient(t, e)
	if _, err := client.Get(within(t, 5*time.Second), "key"); err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(within(t, 300*time.Millisecond), "key"); err == nil {
		t.Error("a paused server answers")
	}
	if err := e.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(within(t, 5*time.Second), "key"); err != nil {
		t.Error(err)
	}
}

func TestAnEtcdOfAnotherRunIsNotTakenForOurs(t *testing.T) {
	if err := lab.Etcd(t).AsksFor(within(t, limit), "another"); err == nil || !strings.Contains(err.Error(), "another etcd answers") {
		t.Errorf("it is taken for another member: %v", err)
	}
}

func TestEtcdHasNoEmbeddedForm(t *testing.T) {
	_, err := servers.StartEtcd(t.Context(), lab.Supervisor(), servers.Embedded)
	if !errors.Is(err, servers.ErrNotFound) || err.Error() != "etcd has no embedded form; apt-get install etcd-server brings it" {
		t.Errorf("an embedded etcd: %v", err)
	}
}

package backend_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// guarded answers as an etcd that wants tokens, or as one that wants none.
type guarded struct {
	etcdserverpb.UnimplementedAuthServer
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	etcdserverpb.UnimplementedLeaseServer

	address string

	mu     sync.Mutex
	open   bool
	wrong  error         // what it answers to a login
	hold   chan struct{} // a login is answered when it is closed; nil: at once
	token  string        // the valid one
	reject error         // what it answers to another token
	logins []string      // the tokens that came with them
	calls  []string      // the tokens of reads and watches
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	g, server := &guarded{address: listener.Addr().String(), token: "1", reject: rpctypes.ErrGRPCInvalidAuthToken}, grpc.NewServer()
	etcdserverpb.RegisterAuthServer(server, g)
	etcdserverpb.RegisterKVServer(server, g)
	etcdserverpb.RegisterWatchServer(server, g)
	etcdserverpb.RegisterLeaseServer(server, g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is stopped
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return g
}

// Authenticate gives out the valid token.
func (g *guarded) Authenticate(ctx context.Context, r *etcdserverpb.AuthenticateRequest) (*etcdserverpb.AuthenticateResponse, error) {
	g.mu.Lock()
	g.logins = append(g.logins, tokenOf(ctx))
	g.mu.Unlock()
	if g.hold != nil {
		<-g.hold
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.open:
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	case g.wrong != nil:
		return nil, g.wrong
	case r.Name != "stockd" || r.Password != "secret":
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	return &etcdserverpb.AuthenticateResponse{Token: g.token}, nil
}

// Range is a read.
func (g *guarded) Range(ctx context.Context, _ *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}}, g.admit(ctx)
}

// Watch answers that a watch is made.
func (g *guarded) Watch(stream etcdserverpb.Watch_WatchServer) error {
	if err := g.admit(stream.Context()); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}, Created: true}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// LeaseKeepAlive renews a lease.
func (g *guarded) LeaseKeepAlive(stream etcdserverpb.Lease_LeaseKeepAliveServer) error {
	if err := g.admit(stream.Context()); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return stream.Send(&etcdserverpb.LeaseKeepAliveResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}, ID: 1, TTL: 1})
}

func (g *guarded) admit(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := tokenOf(ctx)
	g.calls = append(g.calls, token)
	if !g.open && token != g.token {
		return g.reject
	}
	return nil
}

// set changes what it answers, and returns what was asked since.
func (g *guarded) set(change func()) (logins, calls []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	logins, calls = g.logins, g.calls
	g.logins, g.calls = nil, nil
	return logins, calls
}

func tokenOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if tokens := md.Get(rpctypes.TokenFieldNameGRPC); len(tokens) > 0 {
		return tokens[0]
	}
	return ""
}

func guardedClient(t *testing.T, g *guarded, password string) *clientv3.Client {
	t.Helper()
	client := must.Get(backend.NewEtcd(backend.EtcdOptions{
		Endpoints: []string{g.address}, Username: "stockd", Password: password, DialTimeout: answerWithin,
	}))(t)
	t.Cleanup(func() { hangUp(t, client) })
	return client
}

// A client logs in once, when it is used first, however many requests there are; and again
// where its token is not valid any more. Only the login has no token.
func TestEtcdIsAskedForATokenOnceAndAgainWhereItHasEnded(t *testing.T) {
	g := newGuarded(t)
	client := guardedClient(t, g, "secret")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, token := range []string{"1", "2"} {
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := client.Get(ctx, "x"); err != nil {
					t.Errorf("with the token %s: %v", token, err)
				}
			})
		}
		all.Wait()
		logins, calls := g.set(func() { g.token = "2" })
		should.Equal(t, logins, []string{""}, "with the token … there are the logins", token)
		if n := len(calls); n < 5 || calls[n-1] != token || slices.Contains(calls, "") {
			t.Errorf("with the token %s the requests have %q", token, calls)
		}
	}
}

// The tokens of an etcd that signs them itself are valid until a user or a role is changed, and one
// that has lost its data knows no user of a token.
func TestEtcdIsAskedForAnotherTokenHoweverItRejectsOne(t *testing.T) {
	for _, reject := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty} {
		g := newGuarded(t)
		g.reject = reject
		client := guardedClient(t, g, "secret")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := client.Get(ctx, "x"); err != nil {
			t.Errorf("%v: with a valid token: %v", reject, err)
		}
		g.set(func() { g.token = "2" })
		_, _ = client.Get(ctx, "x") // it may be sent again at once
		if _, err := client.Get(ctx, "x"); err != nil {
			t.Errorf("%v: after a token was rejected: %v", reject, err)
		}
	}
}

// A stream is signed, too; one that is rejected is not answered, and the next has another token.
func TestAStreamOfEtcdIsSigned(t *testing.T) {
	g := newGuarded(t)
	client := guardedClient(t, g, "secret")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if answer := <-client.Watch(ctx, "x", clientv3.WithCreatedNotify()); answer.Err() != nil || !answer.Created {
		t.Errorf("the watch: %+v", answer)
	}
	for _, token := range []string{"1", "2"} {
		_, err := client.KeepAliveOnce(ctx, 1)
		if token != "1" && err != nil {
			_, err = client.KeepAliveOnce(ctx, 1)
		}
		should.Fail(t, err, nil, "with the token …", token)
		if logins, calls := g.set(func() { g.token = "2" }); len(logins) != 1 || calls[len(calls)-1] != token {
			t.Errorf("with the token %s there are %d logins, and the streams have %q", token, len(logins), calls)
		}
	}
}

// An etcd without passwords is asked once, and wants no tokens.
func TestAnEtcdWithoutPasswordsWantsNoToken(t *testing.T) {
	g := newGuarded(t)
	g.open = true
	client := guardedClient(t, g, "secret")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 3 {
		must.Get(client.Get(ctx, "x"))(t)
	}
	if logins, calls := g.set(func() {}); len(logins) != 1 || !slices.Equal(calls, []string{"", "", ""}) {
		t.Errorf("%d logins, and the tokens %q", len(logins), calls)
	}
}

// A login that fails is the error of the request, and the next request logs in again.
func TestALoginThatFailedIsTriedAgain(t *testing.T) {
	g := newGuarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	should.Reject(guardedClient(t, g, "wrong").Get(ctx, "x"))(t, rpctypes.ErrAuthFailed)
	g.set(func() { g.wrong = rpctypes.ErrGRPCPermissionDenied })
	client := guardedClient(t, g, "secret")
	should.Reject(client.Get(ctx, "x"))(t, rpctypes.ErrPermissionDenied)
	_, calls := g.set(func() { g.wrong = nil })
	should.Be(t, len(calls), 0, "sent without a login", calls)
	if _, err := client.Get(ctx, "x"); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// A request that waits for the login of another waits no longer than its own time.
func TestTheWaitForALoginEndsWithItsRequest(t *testing.T) {
	g := newGuarded(t)
	g.hold = make(chan struct{})
	client := guardedClient(t, g, "secret")
	first := make(chan error, 1)
	go func() {
		_, err := client.Get(t.Context(), "x")
		first <- err
	}()
	var logins []string
	labtest.Await(t, "the login of the first", 5*time.Second, func() bool { logins, _ = g.set(func() {}); return len(logins) > 0 })
	answer := sync.OnceFunc(func() { close(g.hold) })
	timer := time.AfterFunc(5*time.Second, answer)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	should.Reject(client.Get(ctx, "x"))(t, context.DeadlineExceeded)
	if !timer.Stop() {
		t.Error("it has waited for the login of the first")
	}
	answer()
	must.Do(t, <-first)
}

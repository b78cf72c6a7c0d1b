package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// EtcdOptions say how to reach an etcd.
type EtcdOptions struct {
	// Endpoints are the members' addresses, with http:// or https:// before
	// them or without.
	Endpoints []string
	Username  string
	Password  string
	// TLS is for those endpoints that begin with https://; nil believes the system's
	// authorities.
	TLS *tls.Config `json:"-"`
	// DialTimeout bounds the making of a connection.
	DialTimeout time.Duration
}

const (
	// A connection on which nothing comes back is given up after the sum of
	// these. A server counts pings that come more often as an attack.
	etcdPingAfter  = 10 * time.Second
	etcdPingWithin = 3 * time.Second
	// etcdRedial bounds the pause between two tries to connect, which gRPC
	// would lengthen to two minutes.
	etcdRedial = 500 * time.Millisecond
)

// NewEtcd makes a client; it does not wait for a server.
func NewEtcd(o EtcdOptions) (*clientv3.Client, error) {
	redial := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: o.DialTimeout}
	redial.Backoff.BaseDelay, redial.Backoff.MaxDelay = etcdRedial/10, etcdRedial
	options := []grpc.DialOption{grpc.WithConnectParams(redial)}
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(etcdCredentials{credentials.NewTLS(o.TLS), o.TLS.ServerName}))
	}
	if o.Username != "" {
		login := newEtcdLogin(o.Username, o.Password) // below the library's interceptors, which send a call again when its token was rejected
		options = append(options, grpc.WithChainUnaryInterceptor(login.unary), grpc.WithChainStreamInterceptor(login.stream))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
		TLS:                  o.TLS,
		DialKeepAliveTime:    etcdPingAfter,
		DialKeepAliveTimeout: etcdPingWithin,
		DialOptions:          options,
		Logger:               zap.NewNop(), // it would print to stderr
	})
	if err != nil {
		return nil, fmt.Errorf("make a client of etcd: %w", err)
	}
	return client, nil
}

// etcdCredentials verify the configured name, where there is one: gRPC replaces it by the host of
// the address.
type etcdCredentials struct {
	credentials.TransportCredentials
	name string
}

func (c etcdCredentials) ClientHandshake(ctx context.Context, authority string, plain net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.TransportCredentials.ClientHandshake(ctx, cmp.Or(c.name, authority), plain)
}

func (c etcdCredentials) Clone() credentials.TransportCredentials {
	return etcdCredentials{c.TransportCredentials.Clone(), c.name}
}

// pingEtcd asks for a write that the cluster agrees upon, and that changes nothing, because no version is -1: a
// member without a quorum is no help to a lock, and one without space only reads. The key need not exist. It
// goes past the library, which would only say that time is up, where gRPC knows why there is no connection.
func pingEtcd(ctx context.Context, client *clientv3.Client, key string) error {
	never := clientv3.Compare(clientv3.Version(key), "=", -1)
	_, err := etcdserverpb.NewKVClient(client.ActiveConnection()).Txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{never.GetCompare()},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte(key)}}}},
	}, grpc.WaitForReady(true))
	return rpctypes.Error(err)
}

// etcdLogin signs what a client sends with a token that it gets for a name and
// a password.
//
// The library has the same, but asks for the token before there is a client, and waits for the
// answer: a service could not start without its etcd. It also sends the expired token when it asks
// for the next, which an etcd older than 3.5 rejects: the client would never recover from a restart.
type etcdLogin struct {
	name, password string

	asking chan struct{}          // holds one element while a call asks
	token  atomic.Pointer[string] // nil until it is known, empty where none is needed
}

func newEtcdLogin(name, password string) *etcdLogin {
	return &etcdLogin{name: name, password: password, asking: make(chan struct{}, 1)}
}

func (l *etcdLogin) unary(ctx context.Context, method string, question, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == etcdserverpb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, question, answer, conn, opts...)
	}
	token, err := l.get(ctx, conn)
	if err != nil {
		return err
	}
	err = invoke(sign(ctx, token), method, question, answer, conn, opts...)
	l.forget(token, err)
	return err
}

func (l *etcdLogin) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.get(ctx, conn)
	if err != nil {
		return nil, err
	}
	stream, err := open(sign(ctx, token), desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return etcdSigned{stream, l, token}, nil
}

// etcdSigned is a stream that was signed.
type etcdSigned struct {
	grpc.ClientStream

	login *etcdLogin
	token *string
}

// RecvMsg notices where the token was rejected.
func (s etcdSigned) RecvMsg(answer any) error {
	err := s.ClientStream.RecvMsg(answer)
	s.login.forget(s.token, err)
	return err
}

func sign(ctx context.Context, token *string) context.Context {
	if *token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token)
}

// get is the token. Where it is not known one call asks for it, and the others wait.
func (l *etcdLogin) get(ctx context.Context, conn *grpc.ClientConn) (*string, error) {
	if token := l.token.Load(); token != nil {
		return token, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if token := l.token.Load(); token != nil {
		return token, nil
	}
	answer, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx,
		&etcdserverpb.AuthenticateRequest{Name: l.name, Password: l.password}, grpc.WaitForReady(true))
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		return nil, err
	}
	token := answer.GetToken()
	l.token.Store(&token)
	return &token, nil
}

// forget drops a token that was rejected, unless there is another one already.
func (l *etcdLogin) forget(token *string, err error) {
	if err == nil {
		return
	}
	for _, rejected := range []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty} {
		if errors.Is(rpctypes.Error(err), rejected) {
			l.token.CompareAndSwap(token, nil)
		}
	}
}

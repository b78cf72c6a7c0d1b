package backend

import (
	"context"
	"errors"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

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

// dialOptions put the login below the library's own interceptors, which send a
// call again when its token was rejected.
func (l *etcdLogin) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)}
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

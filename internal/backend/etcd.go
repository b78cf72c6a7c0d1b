package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
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
	TLS *tls.Config
	// DialTimeout bounds the making of a connection. 0: 2 s.
	DialTimeout time.Duration
}

const (
	etcdDialWithin = 2 * time.Second
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
	redial := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: cmp.Or(o.DialTimeout, etcdDialWithin)}
	redial.Backoff.BaseDelay, redial.Backoff.MaxDelay = etcdRedial/10, etcdRedial
	options := []grpc.DialOption{grpc.WithConnectParams(redial)}
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(etcdCredentials{credentials.NewTLS(o.TLS), o.TLS.ServerName}))
	}
	if o.Username != "" {
		options = append(options, newEtcdLogin(o.Username, o.Password).dialOptions()...)
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

// ClientHandshake makes sure of the server.
func (c etcdCredentials) ClientHandshake(ctx context.Context, authority string, plain net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.TransportCredentials.ClientHandshake(ctx, cmp.Or(c.name, authority), plain)
}

// Clone is the same.
func (c etcdCredentials) Clone() credentials.TransportCredentials {
	return etcdCredentials{c.TransportCredentials.Clone(), c.name}
}

// pingEtcd asks for a read that the cluster agrees upon: a member without a quorum
// is no help to a lock. The key need not exist. It goes past the library, which
// would only say that time is up, where gRPC knows why there is no connection.
func pingEtcd(ctx context.Context, client *clientv3.Client, key string) error {
	_, err := etcdserverpb.NewKVClient(client.ActiveConnection()).
		Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key), CountOnly: true}, grpc.WaitForReady(true))
	return rpctypes.Error(err)
}

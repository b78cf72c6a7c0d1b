package lock

import (
	"cmp"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// EtcdOptions say how to reach an etcd.
type EtcdOptions struct {
	// Endpoints are the members' addresses, with http:// or https:// before
	// them or without.
	Endpoints []string
	Username  string
	Password  string
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

// NewEtcdClient makes a client; it does not wait for a server.
func NewEtcdClient(o EtcdOptions) (*clientv3.Client, error) {
	redial := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: cmp.Or(o.DialTimeout, etcdDialWithin)}
	redial.Backoff.BaseDelay, redial.Backoff.MaxDelay = etcdRedial/10, etcdRedial
	options := []grpc.DialOption{grpc.WithConnectParams(redial)}
	if o.Username != "" {
		options = append(options, newEtcdLogin(o.Username, o.Password).dialOptions()...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
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

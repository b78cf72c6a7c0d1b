package servers

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startInside starts an etcd in this process.
func (e *Etcd) startInside(ctx context.Context) (stop func(), err error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
		return server.Close, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	server.Close()
	return nil, fmt.Errorf("start etcd: %w; the end of its log:\n%s", err, logTail(config.LogOutputs[0]))
}

func (e *Etcd) config() (*embed.Config, error) {
	endpoint, err := url.Parse(e.Endpoint)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(e.peer)
	if err != nil {
		return nil, err
	}
	c := embed.NewConfig()
	c.Name, c.Dir = e.name, filepath.Join(e.folder, "data")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*endpoint}, []url.URL{*endpoint}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = etcdHeartbeat, etcdElection
	c.UnsafeNoFsync, c.EnableGRPCGateway = true, false
	c.LogLevel, c.LogOutputs = "warn", []string{filepath.Join(e.folder, "server.log")}
	return c, nil
}

package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// StartSecureEtcd starts an etcd that takes TLS only. It has two users: stockd's,
// which may only touch keys that begin with "stockd/", and root.
func StartSecureEtcd(ctx context.Context, k *Supervisor, s *Security) (*Etcd, error) {
	e, err := newEtcd(k, s)
	if err != nil {
		return nil, err
	}
	if err := onFreePort(func(port int) error { return e.startOn(ctx, port) }); err != nil {
		return nil, err
	}
	if err := e.addUsers(ctx); err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// addUsers makes the users; from then on only they are let in.
func (e *Etcd) addUsers(ctx context.Context) error {
	client, err := e.Open()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	root, password := rand.Text(), rand.Text()
	const prefix = "stockd/"
	steps := []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", root); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, clientName); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, clientName, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, clientName, password); return err },
		func() error { _, err := client.UserGrantRole(ctx, clientName, clientName); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("give etcd its users: %w", err)
		}
	}
	e.root, e.password = root, password
	return nil
}

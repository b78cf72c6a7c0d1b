package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// StartSecureEtcd starts an etcd that takes TLS only. It has users: one for stockd,
// who may touch what begins with "stockd/" and nothing else, and its root.
func StartSecureEtcd(ctx context.Context, k *Supervisor, s *Security) (*Etcd, error) {
	program, err := findEtcd()
	if err != nil {
		return nil, err
	}
	e, err := startEtcd(ctx, k, program, s)
	if err != nil {
		return nil, err
	}
	if err := e.addUsers(ctx); err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// addUsers makes the users, and lets nobody else in from then on.
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

// etcd is how an etcd is told of it.
func (s *Security) etcd() []string {
	if s == nil {
		return nil
	}
	args := []string{"--cert-file=" + s.own.CertFile, "--key-file=" + s.own.KeyFile}
	if s.ClientCerts {
		args = append(args, "--client-cert-auth", "--trusted-ca-file="+s.Authority.CAFile)
	}
	return args
}

package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stockd/stockd/internal/backend"
)

// A cluster of one needs no other votes. What these milliseconds bound is the
// shortest lease: one second, and not two as with etcd's defaults.
const (
	etcdHeartbeat = 50
	etcdElection  = 500
)

// etcdHashes has a login cost as little as it can: the passwords are random.
const etcdHashes = "--bcrypt-cost=4"

// Users of an etcd: stockd's has the rights that the documents give it, and root may do everything. They have the
// same password.
const (
	EtcdUser = clientName
	EtcdRoot = "root"
)

// Etcd is one that runs, and how to reach it. It keeps its data over a restart.
type Etcd struct {
	Info
	// Password is that of its users. It is empty until they are there.
	Endpoint, Password string
	runner

	server  *Server
	name    string // of the member, unique
	peer    string // where other members reach it
	cluster string // the members, as etcd writes them; empty: it is alone

	security *Security
}

// StartEtcd starts an etcd, a cluster of one, with its users.
func StartEtcd(ctx context.Context, k *Supervisor, mode Mode) (*Etcd, error) {
	if mode == Embedded {
		return nil, &MissingError{What: "etcd has no embedded form", How: bringsEtcd}
	}
	return StartSecureEtcd(ctx, k, nil)
}

// StartSecureEtcd starts an etcd that takes TLS only.
func StartSecureEtcd(ctx context.Context, k *Supervisor, s *Security) (*Etcd, error) {
	e, err := newEtcd(k, s)
	if err != nil {
		return nil, err
	}
	if err := e.server.start(ctx); err != nil {
		return nil, err
	}
	return e, addUsers(ctx, e)
}

const bringsEtcd = "apt-get install etcd-server brings it"

// newEtcd is a process that has no ports yet.
func newEtcd(k *Supervisor, s *Security) (*Etcd, error) {
	program, err := Find("etcd")
	if err != nil {
		return nil, &MissingError{What: err.Error(), How: bringsEtcd}
	}
	e := &Etcd{name: rand.Text(), Info: Info{Name: "etcd", Started: Local}, security: s}
	// Old versions take some processors only where they are named.
	env := append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	e.server, err = newServer(k, Spec{Name: "etcd", Program: program, Configure: e.arguments, Ready: e.readVersion, Env: env})
	if err != nil {
		return nil, err
	}
	e.runner = e.server
	return e, nil
}

// allocate gives it a port for clients, and one for other members.
func (e *Etcd) allocate(port, peer int) {
	scheme := "http://"
	if e.security != nil {
		scheme = "https://"
	}
	e.Endpoint, e.peer = scheme+Loopback(port), "http://"+Loopback(peer)
}

// StartEtcdCluster starts so many members, of which one leads before this returns.
// They are real servers.
func StartEtcdCluster(ctx context.Context, k *Supervisor, members int) (*EtcdCluster, error) {
	c, err := startEnsemble(ctx, members, func() (*Etcd, error) { return newEtcd(k, nil) }, func(all []*Etcd) error {
		ports, err := freePorts(2 * len(all))
		if err != nil {
			return err
		}
		list := make([]string, len(all))
		for i, one := range all {
			one.allocate(ports[2*i], ports[2*i+1])
			list[i] = one.name + "=" + one.peer
		}
		for _, one := range all {
			one.cluster = strings.Join(list, ",")
			if err := one.server.configure(0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, addUsers(ctx, c.Members...)
}

func (e *Etcd) leads(ctx context.Context) bool {
	client, err := e.open("") // no login: a member that is cut off could not answer it
	if err != nil {
		return false
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	status, err := client.Status(ctx, e.Endpoint)
	return err == nil && status.Leader == status.Header.GetMemberId()
}

// arguments gives it ports where it is alone: those of a cluster know each other's.
func (e *Etcd) arguments(folder string, port int) (args, env []string, err error) {
	if e.cluster == "" {
		peer, err := FreePort()
		if err != nil {
			return nil, nil, err
		}
		e.allocate(port, peer)
	}
	args = []string{
		"--name=" + e.name, "--data-dir=" + filepath.Join(folder, "data"),
		"--listen-client-urls=" + e.Endpoint, "--advertise-client-urls=" + e.Endpoint,
		"--listen-peer-urls=" + e.peer, "--initial-advertise-peer-urls=" + e.peer,
		"--initial-cluster=" + cmp.Or(e.cluster, e.name+"="+e.peer),
		fmt.Sprintf("--heartbeat-interval=%d", etcdHeartbeat),
		fmt.Sprintf("--election-timeout=%d", etcdElection), etcdHashes,
		"--logger=zap", "--log-outputs=stderr", "--log-level=warn",
	}
	if s := e.security; s != nil {
		args = append(args, "--cert-file="+s.own.CertFile, "--key-file="+s.own.KeyFile)
		if s.ClientCerts {
			args = append(args, "--client-cert-auth", "--trusted-ca-file="+s.Authority.CAFile)
		}
	}
	// The data need not survive the machine. Some versions do not know the flag, and
	// not all that know it list it in their help.
	const noSync = "--unsafe-no-fsync"
	if err := exec.Command(e.server.spec.Program, noSync, "--version").Run(); err == nil {
		args = append(args, noSync)
	}
	return args, nil, nil
}

func (e *Etcd) readVersion(ctx context.Context, _ int) error {
	// A client would back off until a process listens.
	if err := listening(ctx, e.Endpoint[strings.Index(e.Endpoint, "//")+2:]); err != nil {
		return err
	}
	client, err := e.Open()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	cluster, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(cluster.Members, func(m *etcdserverpb.Member) bool { return m.Name == e.name }) {
		return errors.New("another etcd answers, or this one not yet")
	}
	status, err := client.Status(ctx, e.Endpoint)
	if err != nil {
		return err
	}
	if status.Leader == 0 {
		return errors.New("there is no leader yet")
	}
	e.Version = status.Version
	return nil
}

// Open makes a client that may do everything.
func (e *Etcd) Open() (*clientv3.Client, error) { return e.open(EtcdRoot) }

func (e *Etcd) open(user string) (*clientv3.Client, error) {
	encryption, err := e.security.ClientConfig()
	if err != nil {
		return nil, err
	}
	c := clientv3.Config{Endpoints: []string{e.Endpoint}, TLS: encryption, DialTimeout: connectTimeout, Logger: zap.NewNop()}
	if e.Password != "" && user != "" {
		c.Username, c.Password = user, e.Password
	}
	return clientv3.New(c)
}

// Conn is how the etcd is reached.
func (e *Etcd) Conn() Conn {
	return Conn{Etcd: backend.EtcdOptions{Endpoints: []string{e.Endpoint}, Username: EtcdUser, Password: e.Password}, security: e.security}
}

// addUsers makes the users of a cluster; from then on only they are let in. Where that fails it ends the cluster.
func addUsers(ctx context.Context, all ...*Etcd) error {
	password := rand.Text()
	if err := all[0].addUsers(ctx, password); err != nil {
		return errors.Join(fmt.Errorf("give etcd its users: %w", err), closeAll(context.WithoutCancel(ctx), all))
	}
	for _, e := range all {
		e.Password = password
	}
	return nil
}

func (e *Etcd) addUsers(ctx context.Context, password string) error {
	client, err := e.Open()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	const prefix = "stockd/"
	for _, step := range []func() error{
		func() error { _, err := client.RoleAdd(ctx, EtcdUser); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, EtcdUser, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { return addUser(ctx, client, EtcdUser, password) },
		func() error { return addUser(ctx, client, EtcdRoot, password) },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// addUser makes a user that has the role of its name.
func addUser(ctx context.Context, client *clientv3.Client, name, password string) error {
	if _, err := client.UserAdd(ctx, name, password); err != nil {
		return err
	}
	_, err := client.UserGrantRole(ctx, name, name)
	return err
}

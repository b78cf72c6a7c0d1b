package servers

import (
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
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A cluster of one needs nobody's vote. What these milliseconds bound is the
// shortest lease: one second, and not two as with etcd's defaults.
const (
	etcdHeartbeat = 50
	etcdElection  = 500
)

// Etcd is one that runs, and how to reach it. It keeps its data over a restart.
type Etcd struct {
	Info
	Endpoint string
	runner

	name    string // of the member; nobody else has it
	folder  string
	peer    string // where other members reach it
	cluster string // who they are, as etcd writes it

	security       *Security
	root, password string // of its users, where it has any
}

// StartEtcd starts an etcd, a cluster of one.
func StartEtcd(ctx context.Context, k *Supervisor, mode Mode) (*Etcd, error) {
	program, err := findEtcd()
	if err != nil && mode == Local {
		return nil, err
	}
	if err != nil || mode == Embedded {
		program = ""
	}
	return startEtcd(ctx, k, program, nil)
}

func findEtcd() (program string, err error) {
	if program, err = Find("etcd"); err != nil {
		return "", &MissingError{What: err.Error(), How: "apt-get install etcd-server brings it"}
	}
	return program, nil
}

// startEtcd starts a program, or, where that is empty, one inside of this process,
// which knows of no security.
func startEtcd(ctx context.Context, k *Supervisor, program string, s *Security) (*Etcd, error) {
	folder, err := os.MkdirTemp(k.Folder(), "etcd-")
	if err != nil {
		return nil, err
	}
	e := newEtcd(folder)
	e.security = s
	e.runner = &embedded{name: "etcd", start: e.startInside}
	if program != "" {
		e.Started = Local
	}
	err = onFreePort(func(port int) error {
		if err := e.place(port); err != nil {
			return err
		}
		e.cluster = e.itself()
		if e.Started == Local {
			e.runner = newChild(k, "etcd", e.command(program), e.readVersion)
		}
		return e.Restart(ctx)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newEtcd(folder string) *Etcd {
	return &Etcd{name: rand.Text(), folder: folder, Info: Info{Name: "etcd", Version: version.Version, Started: Embedded}}
}

// place gives it a port for clients, and one for other members.
func (e *Etcd) place(port int) error {
	peer, err := FreePort()
	if err != nil {
		return err
	}
	scheme := "http://"
	if e.security != nil {
		scheme = "https://"
	}
	e.Endpoint, e.peer = scheme+Loopback(port), "http://"+Loopback(peer)
	return nil
}

// itself is how it is written in the list of members.
func (e *Etcd) itself() string { return e.name + "=" + e.peer }

func (e *Etcd) command(program string) Command {
	args := []string{
		"--name=" + e.name, "--data-dir=" + filepath.Join(e.folder, "data"),
		"--listen-client-urls=" + e.Endpoint, "--advertise-client-urls=" + e.Endpoint,
		"--listen-peer-urls=" + e.peer, "--initial-advertise-peer-urls=" + e.peer,
		"--initial-cluster=" + e.cluster,
		fmt.Sprintf("--heartbeat-interval=%d", etcdHeartbeat),
		fmt.Sprintf("--election-timeout=%d", etcdElection),
		"--logger=zap", "--log-outputs=stderr", "--log-level=warn",
	}
	args = append(args, e.security.etcd()...)
	// Nothing has to survive the machine. Not every version can be told so, and
	// of those that can not every one says so in its help.
	const noSync = "--unsafe-no-fsync"
	if err := exec.Command(program, noSync, "--version").Run(); err == nil {
		args = append(args, noSync)
	}
	return Command{
		Path: program, Args: args, Log: filepath.Join(e.folder, "server.log"),
		// Old versions take some processors only where they are named.
		Env: append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH),
	}
}

// readVersion asks the server what it is, once it can decide something.
func (e *Etcd) readVersion(ctx context.Context) error {
	// A client would wait longer and longer for somebody to listen.
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
		return errors.New("nobody leads yet")
	}
	e.Version = status.Version
	return nil
}

// Open makes a client.
func (e *Etcd) Open() (*clientv3.Client, error) {
	encryption, err := e.security.config()
	if err != nil {
		return nil, err
	}
	c := clientv3.Config{Endpoints: []string{e.Endpoint}, TLS: encryption, DialTimeout: connectTimeout, Logger: zap.NewNop()}
	if e.root != "" {
		c.Username, c.Password = "root", e.root
	}
	return clientv3.New(c)
}

// Env is what a replica has to be told to use the etcd.
func (e *Etcd) Env() []string {
	env := []string{"STOCKD_ETCD_ENDPOINTS=" + e.Endpoint}
	if e.password != "" {
		env = append(env, "STOCKD_ETCD_USERNAME="+clientName, "STOCKD_ETCD_PASSWORD="+e.password)
	}
	return append(env, e.security.env("etcd")...)
}

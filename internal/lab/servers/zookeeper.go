package servers

import (
	"context"
	"crypto/tls"
	_ "embed" // for its configuration
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
)

// ZooKeeper is one that runs, and how to reach it. It keeps its data over a
// restart.
type ZooKeeper struct {
	Info
	Address string
	// Clock is its clock, or nil where that is this machine's.
	Clock *Clock
	runner

	server    *Server
	hasClock  bool
	classPath string
	options   []string // of its Java
	ensemble  string   // lines of zoo.cfg about the other members; empty: none
	security  *Security
}

var (
	//go:embed config/zoo.cfg
	zooConfig string
	// logback is for a distribution, which logs with Logback.
	//
	//go:embed config/logback.xml
	logback []byte
)

const bringsZooKeeper = "apt-get install zookeeper brings "

// StartZooKeeper starts a ZooKeeper, an ensemble of one.
func StartZooKeeper(ctx context.Context, k *Supervisor, mode Mode) (*ZooKeeper, error) {
	if mode == Embedded {
		return nil, &MissingError{What: "zookeeper has no embedded form", How: bringsZooKeeper + "a server"}
	}
	return StartSecureZooKeeper(ctx, k, nil)
}

// StartSecureZooKeeper starts a ZooKeeper that takes TLS only.
func StartSecureZooKeeper(ctx context.Context, k *Supervisor, s *Security) (*ZooKeeper, error) {
	z, err := newZooKeeper(k, s, "-Xmx256m")
	if err != nil {
		return nil, err
	}
	return z, z.server.start(ctx)
}

// StartZooKeeperWithClock starts a ZooKeeper with a clock of its own.
func StartZooKeeperWithClock(ctx context.Context, k *Supervisor) (*ZooKeeper, error) {
	z, err := newZooKeeper(k, nil, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
	if err != nil {
		return nil, err
	}
	z.hasClock = true
	return z, z.server.start(ctx)
}

// newZooKeeper is one that has no port yet, on a Java with these options.
func newZooKeeper(k *Supervisor, s *Security, options ...string) (*ZooKeeper, error) {
	java, classPath, err := FindZooKeeper()
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{Info: Info{Started: Local}, classPath: classPath, options: options, security: s}
	z.server, err = newServer(k, Spec{Name: "zookeeper", Program: java, Configure: z.configure, Ready: z.readVersion})
	z.runner = z.server
	return z, err
}

// StartZooKeeperEnsemble starts so many members, of which one leads before this
// returns.
func StartZooKeeperEnsemble(ctx context.Context, k *Supervisor, members int) (*ZooKeeperEnsemble, error) {
	// Many must be no heavier than one is: for the few nodes of an experiment,
	// little memory is enough, and one thread of the collector.
	return startEnsemble(ctx, members, func() (*ZooKeeper, error) {
		return newZooKeeper(k, nil, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
	}, configureEnsemble)
}

// configureEnsemble gives the members their ports. A leader must be found within 100
// ticks, and may be silent for 20.
func configureEnsemble(all []*ZooKeeper) error {
	var config strings.Builder
	config.WriteString("initLimit=100\nsyncLimit=20\n")
	ports, err := freePorts(3 * len(all)) // for clients, for followers and for elections
	if err != nil {
		return err
	}
	for i := range all {
		fmt.Fprintf(&config, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[3*i+1], ports[3*i+2])
	}
	for i, member := range all {
		member.ensemble = config.String()
		if err := member.server.configure(ports[3*i]); err != nil {
			return err
		}
		err := errors.Join(os.MkdirAll(member.file("data"), 0o700), os.WriteFile(member.file("data/myid"), []byte(strconv.Itoa(i+1)), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

func (z *ZooKeeper) leads(ctx context.Context) bool {
	answer, err := z.Ask(ctx, "srvr")
	return err == nil && (strings.Contains(answer, "Mode: leader") || strings.Contains(answer, "Mode: standalone"))
}

// FindZooKeeper looks for a Java, and for the classes of a ZooKeeper: those of a
// distribution whose zkServer.sh is on PATH, or of Debian's package.
func FindZooKeeper() (java, classPath string, err error) {
	if java, err = findJava(); err != nil {
		return "", "", &MissingError{What: err.Error(), How: bringsZooKeeper + "it"}
	}
	if script, err := Find("zkServer.sh", "zkServer"); err == nil {
		if classPath = distribution(script); classPath != "" {
			return java, classPath, nil
		}
	}
	const debian = "/usr/share/java/zookeeper.jar"
	if _, err := os.Stat(debian); err != nil {
		return "", "", &MissingError{What: fmt.Sprintf("zkServer.sh or %s: %v", debian, ErrNotFound), How: bringsZooKeeper + "it"}
	}
	// Its manifest names what it needs, but nothing that would write a log, and not
	// all of what encrypts.
	return java, debian + ":/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar", nil
}

func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	return Find("java")
}

// distribution is the class path of the distribution that a script is of, or
// empty where it is of none.
func distribution(script string) string {
	script, err := filepath.EvalSymlinks(script)
	if err != nil {
		return ""
	}
	home := filepath.Dir(filepath.Dir(script))
	for _, folder := range []string{filepath.Join(home, "lib"), filepath.Join(home, "libexec", "lib")} {
		if found, err := filepath.Glob(filepath.Join(folder, "zookeeper-[0-9]*.jar")); err == nil && len(found) > 0 {
			return filepath.Join(folder, "*")
		}
	}
	return ""
}

func (z *ZooKeeper) file(name string) string { return filepath.Join(z.server.spec.Folder, name) }

func (z *ZooKeeper) configure(folder string, port int) (args, env []string, err error) {
	z.Address = Loopback(port)
	if err := os.WriteFile(z.file("logback.xml"), logback, 0o600); err != nil {
		return nil, nil, err
	}
	if z.hasClock {
		if z.Clock, err = newClock(folder); err != nil {
			return nil, nil, err
		}
		env = z.Clock.env()
	}
	listens, err := z.listens(port)
	if err != nil {
		return nil, nil, err
	}
	config := zooConfig + "dataDir=" + z.file("data") + "\n" + listens + z.ensemble
	return append(z.options,
		"-XX:-UsePerfData", "-Djava.io.tmpdir="+folder, // nothing is left in /tmp after a kill
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dznode.container.checkIntervalMs=1000", // the default is a minute, longer than a run
		"-cp", folder+":"+z.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.file("zoo.cfg"),
	), env, os.WriteFile(z.file("zoo.cfg"), []byte(config), 0o600)
}

// listens is where it listens, and how: what encrypts is Netty.
func (z *ZooKeeper) listens(port int) (string, error) {
	if z.security == nil {
		return fmt.Sprintf("clientPort=%d\nclientPortAddress=127.0.0.1\n", port), nil
	}
	// It wants the key and the certificate in one file.
	var both []byte
	for _, path := range []string{z.security.own.KeyFile, z.security.own.CertFile} {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		both = append(both, content...)
	}
	if err := os.WriteFile(z.file("server.pem"), both, 0o600); err != nil { //nolint:gosec // it is in the folder of this server
		return "", err
	}
	asks := map[bool]string{true: "need", false: "none"}[z.security.ClientCerts]
	return fmt.Sprintf(`secureClientPort=%d
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location=%s
ssl.trustStore.location=%s
ssl.clientAuth=%s
`, port, z.file("server.pem"), z.security.Authority.CAFile, asks), nil
}

func (z *ZooKeeper) readVersion(ctx context.Context, _ int) error {
	config, err := z.Ask(ctx, "conf")
	if err != nil {
		return err
	}
	if !strings.Contains(config, z.server.spec.Folder) {
		return errors.New("another ZooKeeper answers, or this one not yet: " + config)
	}
	said, err := z.Ask(ctx, "srvr")
	if err != nil {
		return err
	}
	rest, found := strings.CutPrefix(said, "Zookeeper version: ")
	if !found {
		return fmt.Errorf("it says %q", said)
	}
	// What follows the number is the commit.
	z.Name, z.Version = "ZooKeeper", rest[:max(0, strings.IndexAny(rest, "-, "))]
	return nil
}

// Ask sends one of the four-letter words, and returns what the server says to it.
func (z *ZooKeeper) Ask(ctx context.Context, word string) (string, error) {
	conn, err := z.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the server ends it
	if deadline, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	said, err := io.ReadAll(conn)
	return string(said), err
}

func (z *ZooKeeper) dial(ctx context.Context) (net.Conn, error) {
	encryption, err := z.security.ClientConfig()
	if err != nil {
		return nil, err
	}
	if encryption == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", z.Address)
	}
	return (&tls.Dialer{Config: encryption}).DialContext(ctx, "tcp", z.Address)
}

// Conn is how the ZooKeeper is reached.
func (z *ZooKeeper) Conn() Conn {
	return Conn{ZooKeeper: backend.ZooKeeperOptions{Servers: []string{z.Address}}, security: z.security}
}

// OpenZooKeeper opens a session of its own, which lasts for so long when it is silent.
func OpenZooKeeper(session time.Duration, addresses ...string) (*zk.Conn, error) {
	conn, _, err := zk.Connect(addresses, session, zk.WithLogger(slog.NewLogLogger(slog.DiscardHandler, 0))) // an error says the same
	return conn, err
}

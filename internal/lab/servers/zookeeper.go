package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ZooKeeper is one that runs, and how to reach it. It keeps its data over a
// restart.
type ZooKeeper struct {
	Info
	Address string
	runner

	folder   string
	security *Security
}

const bringsZooKeeper = "apt-get install zookeeper brings "

// StartZooKeeper starts a ZooKeeper, an ensemble of one.
func StartZooKeeper(ctx context.Context, k *Supervisor, mode Mode) (*ZooKeeper, error) {
	if mode == Embedded {
		return nil, &MissingError{What: "zookeeper has no embedded form", How: bringsZooKeeper + "a server"}
	}
	return startZooKeeper(ctx, k, nil)
}

// StartSecureZooKeeper starts a ZooKeeper that takes TLS only.
func StartSecureZooKeeper(ctx context.Context, k *Supervisor, s *Security) (*ZooKeeper, error) {
	return startZooKeeper(ctx, k, s)
}

func startZooKeeper(ctx context.Context, k *Supervisor, s *Security) (*ZooKeeper, error) {
	z, err := newZooKeeper(k, "-Xmx256m")
	if err != nil {
		return nil, err
	}
	z.security = s
	err = onFreePort(func(port int) error {
		if err := z.configure(port, ""); err != nil {
			return err
		}
		return z.Restart(ctx)
	})
	if err != nil {
		return nil, err
	}
	return z, nil
}

// newZooKeeper is one that has not been configured yet, on a Java that is told
// these options.
func newZooKeeper(k *Supervisor, options ...string) (*ZooKeeper, error) {
	java, classPath, err := FindZooKeeper()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(k.Folder(), "zookeeper-")
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{Info: Info{Started: Local}, folder: folder}
	z.runner = newChild(k, "zookeeper", Command{
		Path: java, Args: append(options, z.arguments(classPath)...), Env: os.Environ(), Log: z.file("server.log"),
	}, z.readVersion)
	return z, nil
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

func (z *ZooKeeper) file(name string) string { return filepath.Join(z.folder, name) }

func (z *ZooKeeper) arguments(classPath string) []string {
	return []string{
		"-XX:-UsePerfData", "-Djava.io.tmpdir=" + z.folder, // nothing is left in /tmp after a kill
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dznode.container.checkIntervalMs=1000", // and not a minute: a run is not longer than that
		"-cp", z.folder + ":" + classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.file("zoo.cfg"),
	}
}

// configure writes what the server reads when it starts: where clients reach it,
// and who else there is.
func (z *ZooKeeper) configure(port int, ensemble string) error {
	z.Address = Loopback(port)
	if err := os.WriteFile(z.file("logback.xml"), []byte(zookeeperLogging), 0o600); err != nil {
		return err
	}
	listens, err := z.listens(port)
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, zookeeperConfig, z.file("data"))
	return os.WriteFile(z.file("zoo.cfg"), append(config, listens+ensemble...), 0o600)
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

// zookeeperConfig counts in ticks of 100 ms, so that a session ends when it
// says, and does not wait for the disk: nothing has to survive the machine.
const zookeeperConfig = `dataDir=%s
tickTime=100
minSessionTimeout=500
maxSessionTimeout=60000
maxClientCnxns=0
forceSync=no
extendedTypesEnabled=true
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,mntr,cons,dump,conf
`

// zookeeperLogging is for a distribution, which logs with Logback.
const zookeeperLogging = `<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5p [%t] %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
`

// readVersion asks the server what it is, once it serves.
func (z *ZooKeeper) readVersion(ctx context.Context) error {
	config, err := z.Ask(ctx, "conf")
	if err != nil {
		return err
	}
	if !strings.Contains(config, z.folder) {
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
	encryption, err := z.security.config()
	if err != nil {
		return nil, err
	}
	if encryption == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", z.Address)
	}
	return (&tls.Dialer{Config: encryption}).DialContext(ctx, "tcp", z.Address)
}

// Env is what a replica has to be told to use the ZooKeeper.
func (z *ZooKeeper) Env() []string {
	return append([]string{"STOCKD_ZOOKEEPER_ADDRESSES=" + z.Address}, z.security.env("zookeeper")...)
}

package config_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func authority(t *testing.T) *servers.Authority {
	t.Helper()
	return must.Get(servers.NewAuthority(t.TempDir()))(t)
}

func issue(t *testing.T, a *servers.Authority, name string) servers.Certificate {
	t.Helper()
	return must.Get(a.Issue(name))(t)
}

// A mistake in the TLS of a backend names its key, and the file.
func TestMistakesOfTLSAreNamedWithTheirFile(t *testing.T) {
	a := authority(t)
	own, other, nothing := issue(t, a, "stockd"), issue(t, a, "other"), write(t, "empty.pem", "nothing\n")
	on := "--redis-tls-enabled=true"
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"an authority that is not there", []string{on, "--redis-tls-ca-file=/nonexistent/ca.pem"}, []string{"redis.tls.ca_file", "/nonexistent/ca.pem"}},
		{"an authority that is none", []string{on, "--redis-tls-ca-file=" + nothing}, []string{"redis.tls.ca_file", nothing, "PEM"}},
		{"a certificate without a key", []string{on, "--redis-tls-cert-file=" + own.CertFile}, []string{"redis.tls.cert_file", "redis.tls.key_file is not"}},
		{"a key without a certificate", []string{on, "--redis-tls-key-file=" + own.KeyFile}, []string{"redis.tls.key_file", "redis.tls.cert_file is not"}},
		{"the key of another certificate", []string{on, "--redis-tls-cert-file=" + own.CertFile, "--redis-tls-key-file=" + other.KeyFile}, []string{"redis.tls.cert_file", own.CertFile, other.KeyFile}},
		{"the admin API's key without a certificate", []string{"--admin-tls-key-file=" + own.KeyFile}, []string{"admin.tls.key_file", "admin.tls.cert_file is not"}},
		{"the admin API's certificate with another key", []string{"--admin-tls-cert-file=" + own.CertFile, "--admin-tls-key-file=" + other.KeyFile}, []string{"admin.tls.cert_file", own.CertFile, other.KeyFile}},
		{"a look at clients without TLS", []string{"--admin-tls-client-ca-file=" + a.CAFile}, []string{"admin.tls.client_ca_file", "admin.tls.cert_file is not"}},
		{"authorities of clients that are none", []string{"--admin-tls-cert-file=" + own.CertFile, "--admin-tls-key-file=" + own.KeyFile, "--admin-tls-client-ca-file=" + nothing}, []string{"admin.tls.client_ca_file", nothing, "PEM"}},
		{"an authority as large as a disk", []string{on, "--redis-tls-ca-file=/dev/zero"}, []string{"redis.tls.ca_file", "/dev/zero", "more than"}},
		{"a key as large as a disk", []string{on, "--redis-tls-cert-file=" + own.CertFile, "--redis-tls-key-file=/dev/zero"}, []string{"redis.tls.cert_file", "/dev/zero", "more than"}},
		{"what has no effect", []string{"--redis-tls-ca-file=" + a.CAFile}, []string{"--redis-tls-ca-file", "redis.tls.ca_file", "redis.tls.enabled is not set"}},
		{"the database's authority that is not there", []string{"--database-driver=mysql", "--database-dsn=shop@tcp(db:3306)/shop", "--database-tls-enabled=true", "--database-tls-ca-file=/nonexistent/ca.pem"}, []string{"database.tls.ca_file", "/nonexistent/ca.pem"}},
		{"TLS to a file", []string{"--database-tls-enabled=true"}, []string{"--database-tls-enabled", "sqlite"}},
		{"TLS in the DSN", []string{"--database-driver=mysql", "--database-dsn=shop@tcp(db:3306)/shop?tls=skip-verify"}, []string{"--database-dsn", "skip-verify", "database.tls"}},
		{"a way round TLS in the DSN", []string{"--database-driver=mysql", "--database-tls-enabled=true", "--database-dsn=shop@tcp(db:3306)/shop?allowFallbackToPlaintext=true"}, []string{"--database-dsn", "allowFallbackToPlaintext", "database.tls"}},
		{"plain endpoints", []string{"--etcd-tls-enabled=true", "--etcd-endpoints=https://a:1,http://b:1"}, []string{"--etcd-endpoints", "https://", `"http://b:1"`}},
		{"endpoints of both kinds", []string{"--etcd-endpoints=http://a:1,https://b:1"}, []string{"--etcd-endpoints", "https://", `"http://a:1"`}},
		{"a password in an endpoint", []string{"--etcd-endpoints=https://shop:" + "hidden@a:1"}, []string{"--etcd-endpoints", "etcd.password"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Load("", flags(t, c.args...))
			if err == nil {
				t.Fatal("no error")
			}
			should.Contain(t, err.Error(), c.want...)
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

// Every section that has a TLS group is held to it.
func TestTheTLSOfEachBackendIsChecked(t *testing.T) {
	for _, section := range []string{"database", "redis", "redlock", "zookeeper", "etcd"} {
		for arg, want := range map[string]string{"ca-file=/nonexistent/ca.pem": "/nonexistent/ca.pem", "key-file=/nonexistent/key.pem": "cert_file is not"} {
			for enabled, want := range map[string]string{"false": section + ".tls.enabled is not set", "true": want} {
				args := []string{"--database-driver=mysql", "--database-dsn=shop@tcp(db:3306)/shop", "--" + section + "-tls-enabled=" + enabled, "--" + section + "-tls-" + arg}
				if _, err := config.Load("", flags(t, args...)); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", args, err, want)
				}
			}
		}
	}
	if c, err := (config.TLS{Enabled: true, ServerName: "db.shop"}).ClientConfig(); err != nil || c.ServerName != "db.shop" || c.RootCAs != nil {
		t.Errorf("the name of a server becomes %+v, %v", c, err)
	}
}

func TestAnHTTPSEndpointEnablesTLS(t *testing.T) {
	for _, endpoints := range []string{"https://a:1, https://b:1", "HTTPS://a:1"} {
		c := load(t, "", "--etcd-endpoints="+endpoints, "--etcd-tls-server-name=etcd.shop")
		if !c.Etcd.TLS.Enabled || c.Source("etcd.tls.enabled") != "--etcd-endpoints" {
			t.Errorf("with %s it is %+v, from %s", endpoints, c.Etcd.TLS, c.Source("etcd.tls.enabled"))
		}
	}
	should.Be(t, load(t, "", "--etcd-endpoints=https://a:1", "--etcd-tls-enabled=true").Source("etcd.tls.enabled"), "--etcd-tls-enabled", "where a flag enables it, it is from")
}

// The printed configuration has the groups within its sections, and means the same.
func TestATLSGroupIsPrintedAndReadFromAFile(t *testing.T) {
	a := authority(t)
	own := issue(t, a, "stockd")
	file := write(t, "tls.yaml", "zookeeper:\n  addresses: z:2281\n  auth: shop:hidden\n  tls:\n    enabled: true\n    ca_file: "+
		a.CAFile+"\n    cert_file: "+own.CertFile+"\n    key_file: "+own.KeyFile+"\n")
	c := load(t, file)
	should.Be(t, c.ZooKeeper.TLS, (config.TLS{Enabled: true, CAFile: a.CAFile, CertFile: own.CertFile, KeyFile: own.KeyFile}), "read as")
	var printed bytes.Buffer
	must.Do(t, c.Print(&printed))
	if text := printed.String(); strings.Contains(text, "hidden") || !strings.Contains(text, "    ca_file: "+a.CAFile) {
		t.Errorf("printed as\n%s", text)
	}
}

// A certificate that is replaced on the disk is shown with the next connection;
// while only one of its two files is new, the last one is.
func TestACertificateIsReadAgainForEachConnection(t *testing.T) {
	a := authority(t)
	first, second := issue(t, a, "first"), issue(t, a, "second")
	address := whoIsThere(t, a)
	c := must.Get(config.TLS{Enabled: true, CAFile: a.CAFile, CertFile: first.CertFile, KeyFile: first.KeyFile}.ClientConfig())(t)
	if c.MinVersion != tls.VersionTLS12 || c.InsecureSkipVerify {
		t.Errorf("it accepts version %x, and without a look: %v", c.MinVersion, c.InsecureSkipVerify)
	}
	for _, step := range []struct{ from, to, want string }{
		{first.CertFile, first.CertFile, "first"},
		{second.CertFile, first.CertFile, "first"},
		{second.KeyFile, first.KeyFile, "second"},
	} {
		replace(t, step.to, step.from)
		conn, err := tls.Dial("tcp", address, c)
		must.Do(t, err)
		name := must.Get(io.ReadAll(conn))(t)
		should.Be(t, string(name), step.want, "the server sees", name)
	}
}

// replace gives a file the content of another one.
func replace(t *testing.T, file, by string) {
	t.Helper()
	content := must.Get(os.ReadFile(by))(t)
	must.Do(t, os.WriteFile(file, content, 0o600))
}

// whoIsThere serves on TLS, and tells each client whose certificate it has shown.
func whoIsThere(t *testing.T, a *servers.Authority) (address string) {
	t.Helper()
	own := issue(t, a, "server")
	pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
	content := must.Get(os.ReadFile(a.CAFile))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	plain := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	listener := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // the test is over
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if c, ok := conn.(*tls.Conn); ok && c.HandshakeContext(t.Context()) == nil {
				io.WriteString(c, c.ConnectionState().PeerCertificates[0].Subject.CommonName) //nolint:errcheck // the client tells
			}
			conn.Close() //nolint:errcheck // it has been answered
		}
	}()
	return plain.Addr().String()
}

// The admin API speaks TLS where it has a certificate, and admits clients without one unless it
// has their authorities.
func TestAListenerAsksForCertificatesWhereItKnowsAuthorities(t *testing.T) {
	a := authority(t)
	own := issue(t, a, "stockd")
	if c, err := (config.ServerTLS{}).ServerConfig(); c != nil || err != nil {
		t.Errorf("without a certificate it is %v, %v", c, err)
	}
	for file, auth := range map[string]tls.ClientAuthType{"": tls.NoClientCert, a.CAFile: tls.RequireAndVerifyClientCert} {
		c := must.Get(config.ServerTLS{CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: file}.ServerConfig())(t)
		if c.ClientAuth != auth || (c.ClientCAs != nil) != (file != "") || c.MinVersion != tls.VersionTLS12 {
			t.Errorf("with authorities %q it asks %v, of version %x", file, c.ClientAuth, c.MinVersion)
		}
		for _, certificate := range []servers.Certificate{issue(t, a, "stockd"), issue(t, a, "stockd")} { // it is read again for each connection
			replace(t, own.CertFile, certificate.CertFile)
			replace(t, own.KeyFile, certificate.KeyFile)
			pair := must.Get(tls.LoadX509KeyPair(certificate.CertFile, certificate.KeyFile))(t)
			if shown, err := c.GetCertificate(nil); err != nil || shown == nil || !bytes.Equal(shown.Certificate[0], pair.Certificate[0]) {
				t.Errorf("it shows %v, %v", shown, err)
			}
		}
	}
	for key, broken := range map[string]config.ServerTLS{
		"cert_file": {CertFile: own.CertFile, KeyFile: a.CAFile}, "client_ca_file": {CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: "/nonexistent"},
	} {
		if c, err := broken.ServerConfig(); c != nil || err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v, %v", key, c, err)
		}
	}
	for key, broken := range map[string]config.TLS{
		"cert_file": {Enabled: true, CertFile: own.CertFile, KeyFile: a.CAFile}, "ca_file": {Enabled: true, CAFile: "/nonexistent"},
	} {
		if c, err := broken.ClientConfig(); c != nil || err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v, %v", key, c, err)
		}
	}
}

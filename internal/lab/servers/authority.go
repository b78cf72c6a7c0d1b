package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Authority signs the certificates of one run. Only its servers and clients trust it,
// and it is removed with the run.
type Authority struct {
	// CAFile is its own certificate, in PEM.
	CAFile string

	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// Certificate is one that an authority has signed, in files.
type Certificate struct{ CertFile, KeyFile string }

// NewAuthority makes an authority, whose files are in a folder below the given one.
func NewAuthority(below string) (*Authority, error) {
	folder, err := os.MkdirTemp(below, "authority-")
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	template := certificateOf("the authority of a run")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a := &Authority{CAFile: filepath.Join(folder, "ca.pem"), folder: folder, key: key, certificate: template}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return a, writePEM(a.CAFile, "CERTIFICATE", der)
}

// Issue signs a certificate for a server at 127.0.0.1, and for a client of that name.
func (a *Authority) Issue(name string) (Certificate, error) {
	return a.IssueUntil(name, a.certificate.NotAfter)
}

// IssueUntil is Issue of one that ends then.
func (a *Authority) IssueUntil(name string, end time.Time) (Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, fmt.Errorf("issue a certificate: %w", err)
	}
	template := certificateOf(name)
	template.NotAfter, template.KeyUsage = end, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost", name}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Certificate{}, fmt.Errorf("issue a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Certificate{}, fmt.Errorf("issue a certificate: %w", err)
	}
	// The same name may be asked for twice.
	base := filepath.Join(a.folder, name+"-"+strings.ToLower(rand.Text()))
	c := Certificate{CertFile: base + ".pem", KeyFile: base + ".key"}
	if err := writePEM(c.CertFile, "CERTIFICATE", der); err != nil {
		return Certificate{}, err
	}
	return c, writePEM(c.KeyFile, "PRIVATE KEY", secret)
}

func certificateOf(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Security is what a server requires of its clients, beside a password: TLS always,
// and with ClientCerts also a certificate of the authority.
type Security struct {
	Authority   *Authority
	ClientCerts bool

	own    Certificate // of the servers
	client Certificate // of stockd, required or not
}

// clientName is the name in the certificates of clients.
const clientName = "stockd"

// NewSecurity issues what servers and clients need.
func NewSecurity(a *Authority, clientCerts bool) (_ *Security, err error) {
	s := &Security{Authority: a, ClientCerts: clientCerts}
	if s.own, err = a.Issue("server"); err != nil {
		return nil, err
	}
	s.client, err = a.Issue(clientName)
	return s, err
}

// ClientConfig is of a client with a certificate; nil where there is no security.
func (s *Security) ClientConfig() (*tls.Config, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // which clients take for a plain connection
	}
	content, err := os.ReadFile(s.Authority.CAFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(s.client.CertFile, s.client.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

func (s *Security) env(section string) []string {
	if s == nil {
		return nil
	}
	prefix := "STOCKD_" + strings.ToUpper(section) + "_TLS_"
	env := []string{prefix + "ENABLED=true", prefix + "CA_FILE=" + s.Authority.CAFile}
	if s.ClientCerts {
		env = append(env, prefix+"CERT_FILE="+s.client.CertFile, prefix+"KEY_FILE="+s.client.KeyFile)
	}
	return env
}

package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/stockd/stockd/internal/reload"
)

// TLS configures the connections to a backend. The server's certificate is always verified.
type TLS struct {
	Enabled    bool   `key:"enabled" default:"false" doc:"encrypt every connection, and verify the server's certificate; redis, redlock, zookeeper and etcd have the same five keys"`
	CAFile     string `key:"ca_file" doc:"PEM file of the trusted authorities, read at the start; those of the system where it is empty"`
	CertFile   string `key:"cert_file" doc:"PEM file of the client certificate, where the server asks for one; read again for each connection"`
	KeyFile    string `key:"key_file" doc:"PEM file of its private key, read again for each connection"`
	ServerName string `key:"server_name" doc:"name that must be in the server's certificate; the host of the address where it is empty"`
}

// ClientConfig returns nil where TLS is not enabled. The error names the key, without its
// section, and the file.
func (t TLS) ClientConfig() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil //nolint:nilnil // nil means no TLS
	}
	roots, err := authorities(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: t.ServerName}
	if t.CertFile != "" {
		own, err := readKeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file %w", err)
		}
		// While only one of the two files has been replaced, it is the last valid one.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.latest(), nil }
	}
	return c, nil
}

// authorities reads a file; without one it returns nil, which means those of the system.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the meaning of nil in crypto/tls
	}
	content, err := reload.ReadText(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("has no certificate in PEM: %s", file)
	}
	return pool, nil
}

// Certificates are the files of certificates that are configured, by their keys.
func (c Config) Certificates() iter.Seq2[string, string] {
	return func(yield func(key, file string) bool) {
		for _, f := range fields(&c) {
			isFile := strings.HasSuffix(f.key, ".cert_file") || strings.HasSuffix(f.key, "ca_file")
			if isFile && f.text() != "" && !yield(f.key, f.text()) {
				return
			}
		}
	}
}

// keyPair is a certificate that is read again for each connection, so that replacing its files
// needs no restart.
type keyPair struct {
	certFile, keyFile string
	last              atomic.Pointer[tls.Certificate] // the last valid one
}

func readKeyPair(certFile, keyFile string) (*keyPair, error) {
	p := &keyPair{certFile: certFile, keyFile: keyFile}
	if err := p.read(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *keyPair) read() error {
	cert, certErr := reload.ReadText(p.certFile)
	key, keyErr := reload.ReadText(p.keyFile)
	err := errors.Join(certErr, keyErr)
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be used with the key in %s: %w", p.certFile, p.keyFile, err)
	}
	p.last.Store(&pair)
	return nil
}

func (p *keyPair) latest() *tls.Certificate {
	_ = p.read() // on an error the last certificate is used, and the peer judges it
	return p.last.Load()
}

func (l *Loaded) tls(section string, t TLS) error {
	key := section + ".tls."
	if !t.Enabled {
		return l.withoutEffect(section+".tls", false)
	}
	var errs []error
	if _, err := authorities(t.CAFile); err != nil {
		errs = append(errs, l.wrong(key+"ca_file", "%w", err))
	}
	return errors.Join(append(errs, l.keyPair(key, t.CertFile, t.KeyFile))...)
}

// keyPair requires both files of a certificate, or none.
func (l *Loaded) keyPair(key, certFile, keyFile string) error {
	switch {
	case certFile == "" && keyFile == "":
		return nil
	case certFile == "":
		return l.wrong(key+"key_file", "is set, and %scert_file is not", key)
	case keyFile == "":
		return l.wrong(key+"cert_file", "is set, and %skey_file is not", key)
	}
	if _, err := readKeyPair(certFile, keyFile); err != nil {
		return l.wrong(key+"cert_file", "%w", err)
	}
	return nil
}

// ServerTLS is the certificate of a listener.
type ServerTLS struct {
	CertFile     string `key:"cert_file" doc:"PEM file of the certificate, with the intermediate ones; read again for each connection"`
	KeyFile      string `key:"key_file" doc:"PEM file of its private key, read again for each connection"`
	ClientCAFile string `key:"client_ca_file" doc:"PEM file of authorities, read at the start: only clients with a certificate of one of them are admitted, with their token; every client where it is empty"`
}

// ServerConfig returns nil where there is no certificate. The error names the key, without its
// section, and the file.
func (t ServerTLS) ServerConfig() (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil //nolint:nilnil // nil means no TLS
	}
	own, err := readKeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file %w", err)
	}
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.latest(), nil },
	}
	if t.ClientCAFile == "" {
		return c, nil
	}
	if c.ClientCAs, err = authorities(t.ClientCAFile); err != nil {
		return nil, fmt.Errorf("client_ca_file %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// adminTLS rejects authorities without a certificate: they would have no effect.
func (l *Loaded) adminTLS() error {
	const key = "admin.tls."
	t := l.Admin.TLS
	var errs []error
	if t.ClientCAFile != "" && t.CertFile == "" {
		errs = append(errs, l.wrong(key+"client_ca_file", "is set, and %scert_file is not", key))
	}
	if _, err := authorities(t.ClientCAFile); err != nil {
		errs = append(errs, l.wrong(key+"client_ca_file", "%w", err))
	}
	return errors.Join(append(errs, l.keyPair(key, t.CertFile, t.KeyFile))...)
}

package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// TLS is how the connections to a backend are encrypted, and how both ends know
// each other. There is no way to believe a server without a look at its
// certificate.
type TLS struct {
	Enabled    bool   `key:"enabled" default:"false" doc:"encrypt every connection, and believe only a server whose certificate is right"`
	CAFile     string `key:"ca_file" doc:"PEM file of the authorities that are believed, read at the start; those of the system where it is empty"`
	CertFile   string `key:"cert_file" doc:"PEM file of our own certificate, where the server asks for one; read again for each connection"`
	KeyFile    string `key:"key_file" doc:"PEM file of its private key, read again for each connection"`
	ServerName string `key:"server_name" doc:"name that must be in the server's certificate; the host of the address where it is empty"`
}

// ClientConfig makes of it what clients take: nil where it is not enabled. The
// error names the key, without its section, and the file.
func (t TLS) ClientConfig() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil //nolint:nilnil // no TLS is no error, and clients take nil for it
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
		c.GetClientCertificate = own.present
	}
	return c, nil
}

// authorities are those of the file, or nil for the system's.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // which crypto/tls takes for the system's
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("has no certificate in PEM: %s", file)
	}
	return pool, nil
}

// keyPair is our own certificate. It is read again for each connection, so that
// whoever replaces the files has no replica to restart.
type keyPair struct {
	certFile, keyFile string
	last              atomic.Pointer[tls.Certificate] // the last that was whole
}

func readKeyPair(certFile, keyFile string) (*keyPair, error) {
	p := &keyPair{certFile: certFile, keyFile: keyFile}
	if err := p.read(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *keyPair) read() error {
	pair, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("%s cannot be used with the key in %s: %w", p.certFile, p.keyFile, err)
	}
	p.last.Store(&pair)
	return nil
}

// present shows the certificate to a server that asks for one. In the moment in
// which one of the two files is new and the other is not, it shows the last.
func (p *keyPair) present(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.latest(), nil
}

func (p *keyPair) latest() *tls.Certificate {
	_ = p.read() // the last one is still ours, and the other end says whether it will do
	return p.last.Load()
}

// tls looks at the group of a section. What has no effect is refused: whoever set
// it believes that it has.
func (l *Loaded) tls(section string, t TLS) error {
	key := section + ".tls."
	if !t.Enabled {
		return l.tlsWithoutEffect(section)
	}
	var errs []error
	if _, err := authorities(t.CAFile); err != nil {
		errs = append(errs, l.wrong(key+"ca_file", "%w", err))
	}
	return errors.Join(append(errs, l.keyPair(key, t.CertFile, t.KeyFile))...)
}

// keyPair wants both files of a certificate, or none.
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

func (l *Loaded) tlsWithoutEffect(section string) error {
	var errs []error
	for _, f := range fields(&l.Config) {
		if f.within(section+".tls") && f.text() != f.def {
			errs = append(errs, l.wrong(f.key, "is set to %s, and %s.tls.enabled is not set", f.text(), section))
		}
	}
	return errors.Join(errs...)
}

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
)

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

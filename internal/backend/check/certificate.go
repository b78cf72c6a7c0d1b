package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/reload"
)

// renewBefore is how long before its end a certificate should be replaced.
const renewBefore = 14 * 24 * time.Hour

// CertificateFile is the check of a file of certificates. All of them are used; of authorities one is enough.
func CertificateFile(what, path string, authorities bool) Check {
	return Check{What: what, Run: func(context.Context) Finding {
		rest, err := reload.ReadText(path)
		var list []*x509.Certificate
		for block := new(pem.Block); err == nil && block != nil; {
			if block, rest = pem.Decode(rest); block != nil {
				var one *x509.Certificate
				one, err = x509.ParseCertificate(block.Bytes)
				list = append(list, one)
			}
		}
		if err != nil {
			return Tried(err, "", "certificates in PEM", "see docs/tls.md")
		}
		return ends(list, authorities)
	}}
}

// ServerCertificate is the check of what a server shows.
func ServerCertificate(what, address string, config *tls.Config) Check {
	return Check{What: what, Run: func(ctx context.Context) Finding {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
		if err != nil {
			return Tried(err, "", "a certificate that is trusted", "see docs/tls.md")
		}
		defer conn.Close()                                                      //nolint:errcheck // nothing was sent
		return ends(conn.(*tls.Conn).ConnectionState().PeerCertificates, false) //nolint:forcetypeassert // it says so
	}}
}

// Shown is the check of what the last connection with a configuration was shown. Connections that are made
// later than this call have it.
func Shown(what string, config *tls.Config) Check {
	var last atomic.Pointer[tls.ConnectionState]
	config.VerifyConnection = func(state tls.ConnectionState) error {
		last.Store(&state)
		return nil
	}
	return Check{What: what, Run: func(context.Context) Finding {
		state := last.Load()
		if state == nil {
			state = new(tls.ConnectionState)
		}
		return ends(state.PeerCertificates, false)
	}}
}

// ends compares the first end of some certificates, or the last one, with now.
func ends(list []*x509.Certificate, last bool) Finding {
	const wanted, do = "at least 14 days", "replace it, see docs/tls.md"
	if len(list) == 0 {
		return Tried(errors.New("there is none"), "", wanted, do)
	}
	end := list[0].NotAfter
	for _, one := range list {
		if one.NotAfter.After(end) == last {
			end = one.NotAfter
		}
	}
	state, left := Warning, time.Until(end)
	if left <= 0 {
		state = Problem
	}
	return Judge(left >= renewBefore, state, "until "+end.UTC().Format(time.DateTime), wanted, do)
}

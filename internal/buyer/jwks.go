package buyer

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/stockd/stockd/internal/reload"
)

// keyFile has the keys of a JWKS file, which is read again when it has changed. Where it
// cannot be read, the keys that were read last stay in force.
type keyFile struct{ *reload.Files[[]*verifier] }

// verifier is one key, for one algorithm.
type verifier struct {
	kid       string
	algorithm jose.SignatureAlgorithm
	key       any
}

// NewKeys verifies tokens by the keys of a JWKS file: those of EdDSA (Ed25519), and of
// HS256 with at least MinSecret bytes; other keys are ignored. An audience that is not
// empty must be in every token. The file is read again when it changes, until ctx ends;
// the log gets a line then, also where it cannot be read.
func NewKeys(ctx context.Context, path, audience string, log *slog.Logger) (*Token, error) {
	files, err := reload.Open(func() ([]*verifier, error) { return readKeyFile(path) }, path)
	if err != nil {
		return nil, err
	}
	go files.Keep(ctx, func(err error) {
		if err != nil {
			log.WarnContext(ctx, "keys of buyers not read, earlier keys stay in force", "file", path, "error", err)
			return
		}
		log.InfoContext(ctx, "keys of buyers read", "file", path, "keys", len(files.Get()))
	})
	return newToken(keyFile{files}, audience)
}

func (keyFile) algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.EdDSA, jose.HS256}
}

// find requires a kid if there are several keys. A key is for its own algorithm alone: the
// public key of one is not the secret of another.
func (f keyFile) find(kid string, algorithm jose.SignatureAlgorithm) (*verifier, bool) {
	list := f.Get()
	for _, v := range list {
		if v.algorithm == algorithm && (v.kid == kid || kid == "" && len(list) == 1) {
			return v, true
		}
	}
	return nil, false
}

func (f keyFile) holds(key *verifier) bool { return slices.Contains(f.Get(), key) }

func readKeyFile(path string) ([]*verifier, error) {
	content, err := reload.ReadText(path)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return readKeys(content)
}

// readKeys reads a JWKS. Its errors never quote it: it may hold secrets.
func readKeys(content []byte) ([]*verifier, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, errors.New("read keys: the file is no JWKS")
	}
	var list []*verifier
	seen := make(map[verifierName]bool)
	for i, text := range set.Keys {
		v, ok, err := readKey(text)
		switch name := (verifierName{v.kid, v.algorithm}); {
		case err != nil:
			return nil, fmt.Errorf("read keys: key %d: %w", i+1, err)
		case !ok: // of no use here
		case seen[name]:
			return nil, fmt.Errorf("read keys: key %d: another key has the kid %q", i+1, v.kid)
		default:
			seen[name] = true
			list = append(list, &v)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("read keys: no key is for EdDSA or HS256")
	}
	return list, nil
}

type verifierName struct {
	kid       string
	algorithm jose.SignatureAlgorithm
}

// readKey reads one key; not ok: it is of a kind that is not used here.
func readKey(text []byte) (v verifier, ok bool, err error) {
	var key jose.JSONWebKey
	err = key.UnmarshalJSON(text)
	if errors.Is(err, jose.ErrUnsupportedKeyType) || err == nil && key.Use != "" && key.Use != "sig" {
		return verifier{}, false, nil
	}
	if err != nil || !hasWholePoint(text) {
		return verifier{}, false, errors.New("it is no JWK")
	}
	v = verifier{kid: key.KeyID}
	switch k := key.Key.(type) {
	case ed25519.PublicKey:
		v.algorithm, v.key = jose.EdDSA, k
	case []byte:
		if v.algorithm, v.key = jose.HS256, k; len(k) < MinSecret {
			return v, false, fmt.Errorf("it has %d bytes; at least %d are needed", len(k), MinSecret)
		}
	case ed25519.PrivateKey:
		return v, false, errors.New("it is a private key, which only the issuer may have")
	default:
		return v, false, nil
	}
	return v, key.Algorithm == "" || key.Algorithm == string(v.algorithm), nil
}

// hasWholePoint reports that x is complete, if there is one: the library would pad it with zeros.
func hasWholePoint(text []byte) bool {
	var point struct {
		Curve string `json:"crv"`
		X     string `json:"x"`
	}
	if err := json.Unmarshal(text, &point); err != nil || point.Curve != "Ed25519" {
		return err == nil
	}
	x, err := base64.RawURLEncoding.DecodeString(point.X)
	return err == nil && len(x) == ed25519.PublicKeySize
}

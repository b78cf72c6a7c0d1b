package buyer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// largestToken bounds a token, in bytes.
	largestToken = 4096
	// leeway is how far the clocks of the issuer and of a replica may be apart.
	leeway = 5 * time.Second
	// MinSecret is the least length of a shared secret, in bytes.
	MinSecret = 32
	// maxKnown bounds the tokens that are known, which take about 4 MiB then.
	maxKnown = 16_384
)

// Token is the source that verifies a signed JWT in Authorization.
type Token struct {
	keys     keys
	audience string
	now      func() time.Time
	// known are the claims of tokens by their hash: to verify a signature takes longer than to sell. Only what
	// was verified is known, and its times are checked each time.
	known *lru.Cache[[sha256.Size]byte, verified]
}

// verified are claims, with the key that has signed them.
type verified struct {
	claims
	by *verifier
}

// keys are the verification keys.
type keys interface {
	// find returns the key of a kid for an algorithm; not ok: there is none.
	find(kid string, algorithm jose.SignatureAlgorithm) (key *verifier, ok bool)
	// holds reports whether a key that was found is one still. Keys that were read again are others.
	holds(key *verifier) bool
	algorithms() []jose.SignatureAlgorithm
}

// sharedSecret is one key of HS256. The kid does not matter.
type sharedSecret verifier

func (s *sharedSecret) find(string, jose.SignatureAlgorithm) (*verifier, bool) {
	return (*verifier)(s), true
}

func (*sharedSecret) holds(*verifier) bool { return true }

func (*sharedSecret) algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.HS256}
}

func newToken(k keys, audience string) (*Token, error) {
	known, err := lru.New[[sha256.Size]byte, verified](maxKnown)
	return &Token{keys: k, audience: audience, now: time.Now, known: known}, err
}

// NewSecret verifies tokens by a secret of at least MinSecret bytes. An audience that is
// not empty must be in every token.
func NewSecret(secret []byte, audience string) (*Token, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("secret has %d bytes; at least %d are needed", len(secret), MinSecret)
	}
	return newToken(&sharedSecret{key: secret}, audience)
}

// claims are what is read of a token.
type claims struct {
	jwt.Claims

	GoodsID goodsID `json:"goods_id"`
}

// goodsID is a number, or a number as text.
type goodsID int64

// UnmarshalJSON takes plain digits alone.
func (g *goodsID) UnmarshalJSON(content []byte) error {
	text := string(content)
	if inner, err := strconv.Unquote(text); err == nil {
		text = inner
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text {
		return errGoodsID
	}
	*g = goodsID(n)
	return nil
}

var errGoodsID = errors.New("goods_id is no item")

// From verifies the token of a request. It reads claims only after the signature is verified.
func (t *Token) From(r *http.Request) (Buyer, error) {
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return Buyer{}, nil
	}
	scheme, text, _ := strings.Cut(given[0], " ")
	switch {
	case len(given) > 1:
		return Buyer{}, &TokenError{"is given more than once"}
	case !strings.EqualFold(scheme, "Bearer"):
		return Buyer{}, &TokenError{"is not sent as Bearer"}
	case len(text) > largestToken:
		return Buyer{}, &TokenError{fmt.Sprintf("is longer than %d bytes", largestToken)}
	}
	name := sha256.Sum256([]byte(text))
	v, ok := t.known.Get(name)
	if !ok || !t.keys.holds(v.by) {
		var err error
		if v, err = t.verify(text); err != nil {
			return Buyer{}, err
		}
		t.known.Add(name, v)
	}
	return t.accept(v.claims)
}

func (t *Token) verify(text string) (v verified, err error) {
	token, err := jwt.ParseSigned(text, t.keys.algorithms())
	if err != nil || len(token.Headers) != 1 {
		return v, &TokenError{"is no JWT signed by " + t.names()}
	}
	header := token.Headers[0]
	by, ok := t.keys.find(header.KeyID, jose.SignatureAlgorithm(header.Algorithm))
	if !ok {
		return v, &TokenError{"is signed by an unknown key"}
	}
	v.by = by
	switch err := token.Claims(by.key, &v.claims); {
	case errors.Is(err, jose.ErrCryptoFailure):
		return v, &TokenError{"has a wrong signature"}
	case err != nil:
		return v, &TokenError{"has a header or claims that cannot be read"}
	}
	return v, nil
}

func (t *Token) names() string {
	names := make([]string, 0, 2)
	for _, a := range t.keys.algorithms() {
		names = append(names, string(a))
	}
	return strings.Join(names, " or ")
}

func (t *Token) accept(c claims) (Buyer, error) {
	if c.Expiry == nil {
		return Buyer{}, &TokenError{"has no exp"}
	}
	expected := jwt.Expected{Time: t.now()}
	if t.audience != "" {
		expected.AnyAudience = jwt.Audience{t.audience}
	}
	switch err := c.ValidateWithLeeway(expected, leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return Buyer{}, &TokenError{"has expired"}
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return Buyer{}, &TokenError{"is not valid yet"}
	case err != nil:
		return Buyer{}, &TokenError{"is for another audience"}
	}
	id, err := Canonical(c.Subject)
	if err != nil {
		return Buyer{}, &TokenError{"has a wrong sub: it " + err.Error()}
	}
	return Buyer{ID: id, GoodsID: int64(c.GoodsID)}, nil
}

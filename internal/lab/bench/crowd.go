package bench

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
)

// The kinds of requests that are no plain sales.
const (
	keyed        = "keyed"             // with an Idempotency-Key each
	known        = "by a known token"  // of one buyer, again and again
	fresh        = "by a new token"    // of another buyer each time
	soldOut      = "sold out"          // of an item without units: rejections are counted
	soldOutKeyed = "sold out, keyed"   // the same, with an Idempotency-Key each
	looked       = "looks at the item" // in place of purchases
)

// crowds are what a flash sale also is, on one replica: purchases with keys and tokens, and the crowd that gets nothing.
func (s *stage) crowds() (suite Suite) {
	for _, d := range s.strategies {
		for _, clients := range s.costed() {
			for _, kind := range kindsOf(d.Name) {
				how := Setting{Strategy: d.Name, Kind: kind, Group: d.Name == conditional, Clients: clients, Replicas: s.replicas}
				suite.Subjects = append(suite.Subjects, s.crowd(how))
				suite.Ratios = append(suite.Ratios, s.crowdRatios(how)...)
			}
		}
	}
	return suite
}

func kindsOf(strategy string) []string {
	switch strategy {
	case conditional:
		return []string{keyed, known, fresh, soldOut, soldOutKeyed, looked}
	case inRedis, "redis-lua": // a lock is not taken for a rejection
		return []string{soldOut}
	default:
		return nil
	}
}

// crowdRatios hold a crowd against HTTP alone, and tokens against the same sale without one.
func (s *stage) crowdRatios(how Setting) []Ratio {
	few := how.Clients == usual
	cost := func(by string, below float64) Ratio {
		return Ratio{Name: "processor time of " + how.String() + " / " + by, Of: how.String(), By: by, Cost: true, Below: below}
	}
	alone, plain := httpAlone(how.Clients, how.Replicas), s.name(how.Strategy, how.Group, how.Clients)
	switch how.Kind {
	case keyed:
		return []Ratio{cost(alone, map[bool]float64{true: 3.2, false: 2.6}[few])}
	case known:
		return []Ratio{cost(plain, 1.25)} //nolint:mnd // the target
	case fresh:
		return []Ratio{cost(plain, 1.6)} //nolint:mnd // the target
	default:
		atLeast := 0.8
		if how.Kind == soldOutKeyed {
			atLeast = 0.7
		}
		return []Ratio{
			{Name: how.String() + " / " + alone, Of: how.String(), By: alone, AtLeast: atLeast},
			cost(alone, 1.4), //nolint:mnd // the target
		}
	}
}

func (s *stage) crowd(how Setting) Subject {
	if how.Kind != soldOut && how.Kind != soldOutKeyed && how.Kind != looked {
		return s.sold(how)
	}
	return perSecond(how, func(x *flow.Flow, each time.Duration) Sample {
		plan := s.plan(how, &shelf{goods: []int64{s.create(x, 1)}})
		plan.Clients, plan.Requests = 1, 2 // the only unit, and a rejection
		flow.Get(load.Run(x, plan))(x)
		plan.Clients, plan.Requests, plan.Duration = how.Clients, 0, lasting(how.Clients, each)
		return s.run(x, plan, func(result *load.Result) (answered int, err error) {
			answered = result.Rejected
			if how.Kind == looked {
				answered = result.Sold
			}
			if answered != result.Sent {
				err = fmt.Errorf("%d of %d requests were not answered as they should be: %d were sold, %v", result.Sent-answered, result.Sent, result.Sold, result.Errors)
			}
			return answered, err
		})
	})
}

// as has the requests of a plan be of a kind.
func (s *stage) as(kind string, p *load.Plan) {
	switch kind {
	case looked:
		p.Look = true
	case keyed, soldOutKeyed:
		p.Key = func(int) string { return uuid.NewString() }
	case known:
		p.URL, p.BuyerToken = s.signed.Replicas[0].URL, func() string { return s.token }
	case fresh:
		p.URL, p.BuyerToken = s.signed.Replicas[0].URL, s.sign
	}
}

// startSigned starts a replica whose buyers have tokens.
func (s *stage) startSigned(x *flow.Flow) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	x.Must(err)
	signer := flow.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, nil))(x)
	keys := flow.Get(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public}}}))(x)
	file := filepath.Join(s.shop.Supervisor.Folder(), "keys.json")
	x.Must(os.WriteFile(file, keys, 0o600))
	var last atomic.Int64
	s.sign = func() string {
		claims := jwt.Claims{Subject: strconv.FormatInt(last.Add(1), 10), Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}
		token, _ := jwt.Signed(signer).Claims(claims).Serialize() // a replica rejects an empty one
		return token
	}
	s.token = s.sign()
	s.signed = s.start(x, shop.Replicas{Count: 1, Env: []string{"STOCKD_BUYER_FROM=token", "STOCKD_BUYER_JWKS_FILE=" + file}})
}

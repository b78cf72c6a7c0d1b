package backend

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A token is dropped where it was rejected. A late rejection says nothing of the next one, and another failure
// nothing of any.
func TestATokenIsForgottenWhereItWasRejected(t *testing.T) {
	first, second := "first", "second"
	rejected, failed := rpctypes.ErrGRPCInvalidAuthToken, errors.New("connection refused")
	for name, c := range map[string]struct {
		known, signed *string
		err           error
		want          *string
	}{
		"rejected":                  {&first, &first, rejected, nil},
		"rejected before the next":  {&second, &first, rejected, &second},
		"rejected after it is gone": {nil, &first, rejected, nil},
		"accepted":                  {&first, &first, nil, &first},
		"not answered":              {&first, &first, failed, &first},
	} {
		login := newEtcdLogin("shop", "secret")
		login.token.Store(c.known)
		login.forget(c.signed, c.err)
		if got := login.token.Load(); got != c.want {
			t.Errorf("%s: the token is %v, want %v", name, got, c.want)
		}
	}
}

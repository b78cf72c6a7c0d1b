package hostile

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// issuer signs the tokens of buyers as a shop's own login would. The zero value signs
// none: then a buyer is who it says it is.
type issuer struct{ secret string }

// tokenLasts is longer than any run.
const tokenLasts = 24 * time.Hour

// token is a JWT of a buyer.
func (i issuer) token(user string) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, user, time.Now().Add(tokenLasts).Unix())
	return sign(`{"alg":"HS256","typ":"JWT"}`, claims, i.secret)
}

// sign is a JWT of a header and claims, by HS256 whatever the header says.
func sign(header, claims, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(header)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// env has a replica verify the tokens.
func (i issuer) env() []string {
	if i.secret == "" {
		return []string{"STOCKD_BUYER_FROM=request"}
	}
	return []string{"STOCKD_BUYER_FROM=token", "STOCKD_BUYER_SECRET=" + i.secret}
}

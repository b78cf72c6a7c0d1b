package docs

import (
	"regexp"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
)

// A token that stands in a document is known to everybody: where a token is required, none
// of them is accepted.
func TestNoTokenOfADocumentIsAccepted(t *testing.T) {
	seen := 0
	for _, path := range files(t, ".md") {
		for _, found := range regexp.MustCompile(`STOCKD_ADMIN_TOKEN=([^\s$"']+)`).FindAllStringSubmatch(read(t, path), -1) {
			seen++
			if err := admintoken.Weak(found[1]); err == nil {
				t.Errorf("%s: the token %s is accepted: add it to admintoken.Published", path, found[1])
			}
		}
	}
	if seen == 0 {
		t.Error("no token was seen")
	}
}

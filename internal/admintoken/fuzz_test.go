package admintoken

import (
	"strings"
	"testing"
)

// FuzzTokensFile reads any file: it is rejected without a token in the error, or each of
// its lines has its name and no other.
func FuzzTokensFile(f *testing.F) {
	for _, seed := range []string{
		"alice 0123456789abcdef-alice\n", "# comment\n\nbob\t0123456789abcdef-bob\r\n", "alice a b\n", "alice\n", "Alice 0123456789abcdef\n",
		"a 0123456789abcdef\na fedcba9876543210\n", "a 0123456789abcdef\nb 0123456789abcdef\n", "a aaaaaaaaaaaaaaaa\n", "\xff\xfe\x00", "a\u00a00123456789abcdef",
		"a 0123456789abcdef#x\n", "owner 0123456789abcdef\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		var set Set
		err := set.addLines("tokens", content)
		for line := range strings.Lines(content) {
			fields := strings.Fields(line)
			if len(fields) != 2 || strings.HasPrefix(fields[0], "#") {
				continue
			}
			if err != nil {
				// A long token is in no sentence of ours by accident.
				if len(fields[1]) >= 24 && strings.Contains(err.Error(), fields[1]) {
					t.Errorf("%q is rejected with its token: %v", content, err)
				}
				continue
			}
			if name, ok := set.Find(fields[1]); !ok || name != fields[0] || Weak(fields[1]) != nil {
				t.Errorf("the token of %q is that of %q (%v)", fields[0], name, ok)
			}
			if _, ok := set.Find(fields[1] + "x"); ok {
				t.Errorf("%q has a token that it does not have", content)
			}
		}
		if err == nil && len(set.Names()) == 0 {
			t.Errorf("%q is read without a token", content)
		}
	})
}

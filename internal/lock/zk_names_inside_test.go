package lock

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// FuzzZooKeeperNames makes folders of names and reads numbers of nodes: every name
// has a folder of its own that ZooKeeper takes, and every number is read back.
func FuzzZooKeeperNames(f *testing.F) {
	for _, seed := range []string{"goods/1", "", ".", "..", "%", "%2E", "a b", "\x00", "☂", "goods-1-0000000001", "/stockd/"} {
		f.Add(seed, int32(1))
	}
	f.Add("lock-x", int32(-2147483648))
	f.Fuzz(func(t *testing.T, name string, number int32) {
		folder := zkFolder("zk-sequential", name)
		last, under := strings.CutPrefix(folder, zkRoot+"/zk-sequential/")
		if !under || last == "" || last == "." || last == ".." || strings.Contains(last, "/") {
			t.Errorf("%q is kept in %q", name, folder)
		}
		for _, r := range last {
			if r <= ' ' || r > '~' {
				t.Errorf("%q is kept in %q, which ZooKeeper may refuse", name, folder)
			}
		}
		if plain, err := url.PathUnescape(last); err == nil && plain != name {
			t.Errorf("%q is kept in %q, as %q would be", name, folder, plain)
		}
		if got, err := zkNumber(fmt.Sprintf("%s-%010d", strings.ReplaceAll(name, "-", ""), number)); err != nil || got != int(number) {
			t.Errorf("%d is read as %d (%v)", number, got, err)
		}
		if got, err := zkNumber(name); err != nil && got != 0 {
			t.Errorf("%q is %d and %v", name, got, err)
		}
	})
}

package zk

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// FuzzZooKeeperNames makes folders of names and reads numbers of nodes: every name
// has a folder of its own that ZooKeeper takes, and every number is read back.
func FuzzZooKeeperNames(f *testing.F) {
	for _, seed := range []string{"goods/1", "", ".", "..", "%", "%2E", "a b", "\x00", "☂", "goods-1-0000000001", "/stockd/"} {
		f.Add(seed, int32(1))
	}
	f.Add("lock-x", int32(-2147483648))
	f.Fuzz(func(t *testing.T, name string, number int32) {
		folder := folderOf("stockd", "zk-sequential", name)
		last, under := strings.CutPrefix(folder, "/stockd/zk-sequential/")
		if !under || last == "" || last == "." || last == ".." || strings.Contains(last, "/") {
			t.Errorf("%q is kept in %q", name, folder)
		}
		for _, r := range last {
			if r <= ' ' || r > '~' {
				t.Errorf("%q is kept in %q, which ZooKeeper may reject", name, folder)
			}
		}
		if plain, err := url.PathUnescape(last); err == nil && plain != name {
			t.Errorf("%q is kept in %q, as %q would be", name, folder, plain)
		}
		should.Be(t, must.Get(numberOf(fmt.Sprintf("%s-%010d", strings.ReplaceAll(name, "-", ""), number)))(t), int(number), number, "is read as")
		if got, err := numberOf(name); err != nil && got != 0 {
			t.Errorf("%q is %d and %v", name, got, err)
		}
	})
}

// The server counts in 32 bits, and goes on below 0 where they have overflowed.
func TestZKNumbersThatAreUsedUpAreNoPlaces(t *testing.T) {
	q := newQueue("zk-herd", lock.Deps{Clients: new(backend.Clients)}, lookAround)
	for number, usedUp := range map[int]bool{
		0: false, 1: false, math.MaxInt32 - 1: false, math.MaxInt32: true, -1: true, math.MinInt32: true,
	} {
		should.Be(t, q.usedUp(number), usedUp, "the number … is used up", number)
	}
}

// FuzzZooKeeperPlaces looks for the place before ours among nodes that any client may
// have made: it is the one with the next lower number, and those without one do not
// count.
func FuzzZooKeeperPlaces(f *testing.F) {
	f.Add("a-0000000001\nb-0000000003\nc-0000000002", int32(3))
	f.Add("a\n\n-\na--1\na-0x1\na-1-1\nme-0000000000", int32(7))
	f.Add("a-99999999999999999999\nb-+2\nc-2", int32(2147483647))
	f.Fuzz(func(t *testing.T, others string, number int32) {
		if number < 0 {
			return // its folder is left
		}
		p := &place{number: int(number), numbered: numbered{name: fmt.Sprintf("me-%010d", number)}}
		names := strings.Split(others, "\n")
		if ahead, err := p.ahead(names); !slices.Contains(names, p.name) && !errors.Is(err, backend.ErrBeginAgain) {
			t.Errorf("our node is gone, and %q is before it (%v)", ahead, err)
		}
		names = append(names, p.name)
		ahead := must.Get(p.ahead(names))(t)
		highest := -1
		for _, name := range names {
			if n, err := numberOf(name); err == nil && n < p.number {
				highest = max(highest, n)
			}
		}
		if n, err := numberOf(ahead); highest < 0 && ahead != "" || highest >= 0 && (err != nil || n != highest) {
			t.Errorf("before %d of %q is %q, want number %d", number, names, ahead, highest)
		}
	})
}

package zk

import (
	"cmp"
	"slices"
	"sync"
)

// zkLine is what of the queues stands in this replica. Who has another of the
// same replica before himself needs no watch on the server: he hears of him
// here. And where nobody can be between the two, he need not even look.
type zkLine struct {
	mu      sync.Mutex
	folders map[string][]*zkPlace // in the order of their numbers
	last    *zkPlace              // the last one that passed
}

// join adds a place. It may follow one that has passed already.
func (l *zkLine) join(p *zkPlace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.folders == nil {
		l.folders = make(map[string][]*zkPlace)
	}
	if last := l.last; last != nil && last.folder == p.folder && last.isNextBefore(p) {
		p.before = last
	}
	at, _ := l.find(p)
	l.folders[p.folder] = slices.Insert(l.folders[p.folder], at, p)
}

// before is the place of this replica that is next before another.
func (l *zkLine) before(p *zkPlace) *zkPlace {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := l.find(p)
	if at == 0 {
		return nil
	}
	return l.folders[p.folder][at-1]
}

// leave ends a place, once. passed tells that it was its turn and is not any
// more.
func (l *zkLine) leave(p *zkPlace, passed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, found := l.find(p)
	if !found {
		return
	}
	if p.passed = passed; passed {
		l.last = p
	}
	p.before = nil // so that those who have left are forgotten
	close(p.gone)
	if rest := slices.Delete(l.folders[p.folder], at, at+1); len(rest) > 0 {
		l.folders[p.folder] = rest
	} else {
		delete(l.folders, p.folder)
	}
}

// isNextBefore reports whether nobody can be between two places.
func (p *zkPlace) isNextBefore(other *zkPlace) bool {
	return p.folderCzxid == other.folderCzxid && p.number+1 == other.number
}

// hasPassed reports whether a place had its turn and is gone. Then it is the
// next one's.
func (p *zkPlace) hasPassed() bool {
	select {
	case <-p.gone:
		return p.passed
	default:
		return false
	}
}

func (l *zkLine) find(p *zkPlace) (at int, found bool) {
	return slices.BinarySearchFunc(l.folders[p.folder], p, func(a, b *zkPlace) int {
		return cmp.Or(cmp.Compare(a.folderCzxid, b.folderCzxid), cmp.Compare(a.number, b.number))
	})
}

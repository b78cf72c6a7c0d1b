package backend

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// zkServers names the servers to the library, one after another. Its own way
// would be to resolve them once and for all, and to rest for a second before it
// replaces a connection: that is a session's whole life where the TTL is short.
// Only the library's loop calls it.
type zkServers struct {
	ctx       context.Context // ends with the session
	addresses []string
	next      int
	failed    int // tries since a connection stood
	stood     time.Time
}

// The rests between one round of all servers and the next double from the first
// to the last, which is the library's own.
const (
	firstRest = 50 * time.Millisecond
	lastRest  = time.Second
)

// Init takes the addresses.
func (z *zkServers) Init(addresses []string) error {
	z.addresses = addresses
	return nil
}

// Len counts them.
func (z *zkServers) Len() int { return len(z.addresses) }

// Next is the next one to try, after a rest where all of them have failed.
func (z *zkServers) Next() (address string, rest bool) {
	rounds, more := z.failed/len(z.addresses), z.failed%len(z.addresses)
	if rounds > 0 && more == 0 {
		own := firstRest << min(rounds-1, 10)
		if rest = own >= lastRest; !rest {
			_ = pause.About(z.ctx, own)
		}
	}
	address = z.addresses[z.next%len(z.addresses)]
	z.next++
	z.failed++
	return address, rest
}

// Connected is told of a connection that stands. Those that do not stand for
// long are no reason to try again at once.
func (z *zkServers) Connected() {
	if time.Since(z.stood) > lastRest {
		z.failed = 0
	}
	z.stood = time.Now()
}

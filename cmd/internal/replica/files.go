package replica

import "github.com/stockd/stockd/internal/config"

// otherFiles is more than the log, the sessions of ZooKeeper and etcd, and what is read again have open.
const otherFiles = 64

// OpenFiles are how many files this process may have open, and how many a replica with this configuration needs: one for
// each connection of a listener, served or rejected, and of a pool. Not ok: the limit is not known.
func OpenFiles(c config.Config) (limit, needed uint64, ok bool) {
	listeners := 1
	if c.Admin.Tokens().Any() {
		listeners = 2
	}
	servers := len(c.Redis.Addresses) + len(c.Redlock.Addresses)
	n := listeners*(c.HTTP.MaxConnections+mostAnswered) + c.Database.MaxOpen + c.Lock.Connections + 1 + servers*c.Redis.MaxOpen + otherFiles
	limit, ok = fileLimit()
	return limit, uint64(max(n, 0)), ok
}

package experiment

import (
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/keeper"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Scene is what the steps of one try of a part act on.
type Scene struct {
	Keeper   *keeper.Keeper
	Backends *servers.Backends
	// Cluster is nil where the stage has no replicas.
	Cluster *cluster.Cluster
	// Goods is the goods of this try.
	Goods int64
}

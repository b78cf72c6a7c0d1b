package servers

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ZooKeeperEnsemble is three ZooKeepers, which go on as long as two of them run.
// Each keeps its data over a restart.
type ZooKeeperEnsemble struct {
	Info
	Members []*ZooKeeper
}

// StartZooKeeperEnsemble starts the members, of which one leads before this
// returns.
func StartZooKeeperEnsemble(ctx context.Context, k *Supervisor) (*ZooKeeperEnsemble, error) {
	e := &ZooKeeperEnsemble{Members: make([]*ZooKeeper, members)}
	for i := range e.Members {
		// Three must be no heavier than one is: for the few nodes of an experiment,
		// little memory is enough, and one thread to look after it.
		member, err := newZooKeeper(k, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
		if err != nil {
			return nil, err
		}
		e.Members[i] = member
	}
	err := onFreePort(func(int) error {
		if err := e.configure(); err != nil {
			return err
		}
		return restartAll(ctx, e.Members)
	})
	if err != nil {
		return nil, err
	}
	e.Info = e.Members[0].Info
	e.Name = fmt.Sprintf("%d × %s", len(e.Members), e.Name)
	return e, nil
}

// ensembleConfig bounds in ticks how long members may take to find their leader,
// and how long the leader may be silent.
const ensembleConfig = `initLimit=100
syncLimit=20
`

// configure gives the members their places.
func (e *ZooKeeperEnsemble) configure() error {
	var config strings.Builder
	config.WriteString(ensembleConfig)
	taken := make([]int, len(e.Members))
	for i := range e.Members {
		var three [3]int // for clients, for followers and for elections
		for j := range three {
			port, err := FreePort()
			if err != nil {
				return err
			}
			three[j] = port
		}
		taken[i] = three[0]
		fmt.Fprintf(&config, "server.%d=127.0.0.1:%d:%d\n", i+1, three[1], three[2])
	}
	for i, member := range e.Members {
		if err := member.configure(taken[i], config.String()); err != nil {
			return err
		}
		if err := os.MkdirAll(member.file("data"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(member.file("data/myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// AwaitLeader waits until a member leads, and tells which.
func (e *ZooKeeperEnsemble) AwaitLeader(ctx context.Context) (*ZooKeeper, error) {
	return awaitLeader(ctx, e.Members, func(ctx context.Context, member *ZooKeeper) bool {
		said, err := member.Ask(ctx, "srvr")
		return err == nil && strings.Contains(said, "Mode: leader")
	})
}

// Kill ends all members without a warning.
func (e *ZooKeeperEnsemble) Kill(ctx context.Context) error { return e.Close(ctx) }

// Restart starts all members again.
func (e *ZooKeeperEnsemble) Restart(ctx context.Context) error { return restartAll(ctx, e.Members) }

// Close ends all members.
func (e *ZooKeeperEnsemble) Close(ctx context.Context) error { return closeAll(ctx, e.Members) }

// Env is what a replica has to be told to use the ensemble.
func (e *ZooKeeperEnsemble) Env() []string {
	addresses := make([]string, len(e.Members))
	for i, member := range e.Members {
		addresses[i] = member.Address
	}
	return []string{"STOCKD_ZOOKEEPER_ADDRESSES=" + strings.Join(addresses, ",")}
}

package servers

import (
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Network is hosts on this machine, each in a network namespace of its own, behind one switch. This
// process reaches every host, whatever is cut off. All of it is gone when the processes that keep the
// namespaces end.
type Network struct {
	subnet  string // begins every address
	keepers []*Process
	hosts   int
}

// StartNetwork makes a network of 1 to 9 hosts, numbered from 0. It takes root and the programs ip, unshare
// and nsenter; a MissingError says what is missing.
func StartNetwork(ctx context.Context, k *Supervisor, hosts int) (_ *Network, err error) {
	missing := &MissingError{What: "a network of several hosts: it takes root, and ip, unshare and nsenter", How: "run as root; apt-get install iproute2 util-linux brings them"}
	for _, program := range []string{"ip", "unshare", "nsenter"} {
		if _, err := Find(program); err != nil || os.Geteuid() != 0 {
			return nil, missing
		}
	}
	n := &Network{subnet: fmt.Sprintf("10.213.%d.", os.Getpid()%256), hosts: hosts}
	defer closeAfter(ctx, n, &err)
	for range hosts + 1 { // the last one keeps the switch
		keeper, err := startKeeper(ctx, k)
		if err != nil {
			return nil, err
		}
		n.keepers = append(n.keepers, keeper)
	}
	return n, n.wire(ctx)
}

// startKeeper starts a process that keeps a namespace, and waits until it is in there.
func startKeeper(ctx context.Context, k *Supervisor) (*Process, error) {
	unshare, err := Find("unshare")
	if err != nil {
		return nil, err
	}
	p, err := k.Run(ctx, Command{Path: unshare, Args: []string{"--net", "sleep", "infinity"}, Env: os.Environ(), Log: os.DevNull})
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	return p, eventually(ctx, "a namespace", func(context.Context) (bool, error) {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.Pid()))
		return theirs != own && theirs != "", err
	})
}

//go:embed config/network.sh
var networkScript string

// wire connects the hosts and this process with the switch.
func (n *Network) wire(ctx context.Context) error {
	prefix := fmt.Sprintf("stockd%d", os.Getpid()%100000) // names of interfaces have 15 characters
	pids := make([]string, n.hosts)
	for i := range pids {
		pids[i] = n.pid(i)
	}
	return run(ctx, "sh", append([]string{"-euc", networkScript, "network.sh", n.subnet, prefix, n.pid(n.hosts)}, pids...)...)
}

func (n *Network) pid(i int) string { return strconv.Itoa(n.keepers[i].Pid()) }

// run runs a program to its end.
func run(ctx context.Context, program string, args ...string) error {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(limited, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// address is that of a host; without a network, that of this machine.
func (n *Network) address(i int) string {
	if n == nil {
		return "127.0.0.1"
	}
	return n.subnet + strconv.Itoa(i+1)
}

// clients are where this process is seen to come from, as a server's accounts have it.
func (n *Network) clients() []string {
	if n == nil {
		return nil
	}
	return []string{n.subnet + "%"}
}

// on has a program run on a host; without a network, on this machine.
func (n *Network) on(i int, path string, args []string) (string, []string) {
	if n == nil {
		return path, args
	}
	return "nsenter", slices.Concat([]string{"-t", n.pid(i), "-n", path}, args)
}

// Cut has a host and all others lose what they send to each other.
func (n *Network) Cut(ctx context.Context, host int) error { return n.route(ctx, "add", host) }

// Heal ends a Cut.
func (n *Network) Heal(ctx context.Context, host int) error { return n.route(ctx, "del", host) }

func (n *Network) route(ctx context.Context, what string, host int) error {
	for other := range n.hosts {
		if other == host {
			continue
		}
		for from, to := range map[int]int{host: other, other: host} {
			program, args := n.on(from, "ip", []string{"route", what, "blackhole", n.address(to)})
			if err := run(ctx, program, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends what keeps the network, which is gone with it and with the programs on its hosts.
func (n *Network) Close(ctx context.Context) error {
	errs := make([]error, len(n.keepers))
	for i, keeper := range n.keepers {
		errs[i] = keeper.Kill(ctx)
	}
	return errors.Join(errs...)
}

package servers_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// sleeper is a server that never ends by itself.
func sleeper(ready func(ctx context.Context, pid int) error) servers.Spec {
	return servers.Spec{
		Name: "sleeper", Program: "/bin/sh", Ready: ready,
		Configure: func(string, int) (args, env []string, err error) { return []string{"-c", "exec sleep 1000"}, nil, nil },
	}
}

func TestAServerThatIsNotReadyIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	process := 0
	_, err := servers.Launch(ctx, lab.Supervisor(), sleeper(func(_ context.Context, pid int) error {
		process = pid
		cancel()
		return errors.New("not yet")
	}))
	if !errors.Is(err, context.Canceled) || alive(process) {
		t.Errorf("it ends with %v, and process %d is there: %t", err, process, alive(process))
	}
}

// Another process may take a port between its choice and the bind of the server.
func TestAServerWhosePortWasTakenGetsAnotherOne(t *testing.T) {
	for name, c := range map[string]struct {
		says        string
		free, tries int // with which port it starts, and how many it gets
	}{
		"taken once":         {"bind: Address already in use", 2, 2},
		"always taken":       {"listen tcp: address already in use", 99, 3},
		"it ends for itself": {"the disk is on fire", 99, 1},
	} {
		ports := make(map[int]bool)
		spec := sleeper(func(context.Context, int) error {
			if len(ports) < c.free {
				return errors.New("not yet")
			}
			return nil
		})
		spec.Configure = func(_ string, port int) (args, env []string, err error) {
			if ports[port] = true; len(ports) < c.free {
				return []string{"-c", "echo " + c.says + "; exit 1"}, nil, nil
			}
			return []string{"-c", "exec sleep 1000"}, nil, nil
		}
		s, err := servers.Launch(t.Context(), lab.Supervisor(), spec)
		if len(ports) != c.tries || (err == nil) != (c.free == c.tries) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v after %d ports, want %d", name, err, len(ports), c.tries)
		}
		if s != nil {
			closed(t, s)
		}
	}
}

// A server that is down, or whose proxy is cut off, gets its port again: no other run on this machine has
// taken it meanwhile.
func TestAFreePortIsClaimed(t *testing.T) {
	port, err := servers.FreePort()
	must(t, err)
	if port < 20000 || port >= 32000 {
		t.Errorf("port %d is not below those of outgoing connections", port)
	}
	if other, err := net.ListenPacket("udp", servers.Loopback(port)); err == nil {
		_ = other.Close()
		t.Errorf("another run can claim port %d, too", port)
	}
	served, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	must(t, err)
	must(t, served.Close())
}

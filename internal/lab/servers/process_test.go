package servers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func TestPeakMemoryIsThatOfTheProcess(t *testing.T) {
	before, err := servers.Resident(os.Getpid(), servers.PeakMemory)
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = byte(i)
	}
	after, err := servers.Resident(os.Getpid(), servers.PeakMemory)
	if err != nil || after-before < 32<<20 {
		t.Errorf("64 MiB more took the peak from %d to %d (%v); %d", before, after, err, block[5])
	}
}

// What a program uses is what its children use that live, and what those have used that have
// ended. Another program has none of it.
func TestProcessorTimeIsOfAProgramAndWhatItStarted(t *testing.T) {
	const loop = `i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done; `
	k := labtest.StartSupervisor(t)
	must.Get(k.Run(t.Context(), servers.Command{Path: "/bin/sleep", Args: []string{"1000"}, Log: k.Folder() + "/log"}))(t)
	for where, script := range map[string]string{
		"the program itself":     `eval "$0"; sleep 1000`,
		"one that it started":    `sh -c "$0 sleep 1000" & wait`,
		"one that has ended":     `sh -c "$0"; sleep 1000`,
		"one that another began": `sh -c 'sh -c "$0"; sleep 1000' "$0" & wait`,
	} {
		log, begun := filepath.Join(t.TempDir(), "log"), time.Now()
		p := must.Get(k.Run(t.Context(), servers.Command{Path: "/bin/sh", Args: []string{"-c", script, loop}, Log: log}))(t)
		if !labtest.Eventually(time.Minute, func() bool {
			said, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(said), "done")
		}) {
			t.Fatal("the loop does not end")
		}
		all := must.Get(k.Used())(t)
		// What runs one after the other uses no more than the time that passes.
		if used := all["sh"].User; used < 30*time.Millisecond || used > time.Since(begun) {
			t.Errorf("a loop in %s used %s of %s", where, used, time.Since(begun))
		}
		must.Do(t, p.Kill(t.Context()))
	}
	all, err := k.Used()
	if err != nil || all["sleep"].User != 0 || all["sh"].User != 0 {
		t.Errorf("afterwards %+v, %v; want nothing of sleep, and no more of sh", all, err)
	}
}

// A process that is paused does nothing, and goes on where it stood.
func TestAProcessIsPausedResumedAndKilled(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := lab.Supervisor().Run(t.Context(), servers.Command{
		Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; while :; do echo x; sleep 0.01; done`}, Env: os.Environ(), Log: log,
	})
	must.Do(t, err)
	size := func() int64 {
		info := must.Get(os.Stat(log))(t)
		return info.Size()
	}
	grows := func() {
		t.Helper()
		for from, end := size(), time.Now().Add(limit); size() == from; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not run")
			}
		}
	}
	grows()
	must.Do(t, p.Pause(t.Context()))
	from := size()
	time.Sleep(100 * time.Millisecond)
	should.Be(t, size(), from, "bytes that a paused process has written")
	must.Do(t, p.Resume(t.Context()))
	grows()
	must.Do(t, p.Pause(t.Context()))
	must.Do(t, p.Kill(within(t, limit)))
	should.Contain(t, p.State(), "killed")
}

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
	port := must.Get(servers.FreePort())(t)
	if port < 20000 || port >= 32000 {
		t.Errorf("port %d is not below those of outgoing connections", port)
	}
	if other, err := net.ListenPacket("udp", servers.Loopback(port)); err == nil {
		_ = other.Close()
		t.Errorf("another run can claim port %d, too", port)
	}
	served := must.Get(net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)))(t)
	must.Do(t, served.Close())
}

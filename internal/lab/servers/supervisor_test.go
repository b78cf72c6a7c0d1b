package servers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// clientArgument has the test binary run superviseAndWait.
const clientArgument = "supervise-and-wait"

// superviseAndWait is a client of a supervisor: it starts a child that starts another,
// prints where they are, and waits to be killed.
func superviseAndWait() {
	k, err := servers.StartSupervisor()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := k.Run(context.Background(), shell(k, `trap "" TERM; sleep 1000 & echo $!; wait`))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(k.Folder(), p.Pid())
	select {}
}

func shell(k *servers.Supervisor, script string) servers.Command {
	return servers.Command{
		Path: "/bin/sh", Args: []string{"-c", script},
		Log: filepath.Join(k.Folder(), "log"), Grace: 200 * time.Millisecond,
	}
}

func TestCloseStopsChildrenAndRemovesTheFolder(t *testing.T) {
	k := labtest.StartSupervisor(t)
	stubborn := must.Get(k.Run(t.Context(), shell(k, `trap "" TERM; sleep 1000 & wait`)))(t)
	must.Do(t, k.Close())
	assertGone(t, k.Folder(), stubborn.Pid())
}

// A replica ends before the servers that it needs to answer what it has begun.
func TestTheLastChildIsStoppedFirst(t *testing.T) {
	k := labtest.StartSupervisor(t)
	log, want := filepath.Join(t.TempDir(), "log"), ""
	for _, name := range []string{"server", "replica", "balancer"} {
		c := shell(k, fmt.Sprintf(`trap "echo %[1]s ends; exit" TERM; echo %[1]s; while :; do sleep 0.01; done`, name))
		c.Log, c.Grace = log, limit
		must.Get(k.Run(t.Context(), c))(t)
		want += name + "\n"
		eventually(t, name+" in the log", func() bool { content, _ := os.ReadFile(log); return string(content) == want })
	}
	must.Do(t, k.Close())
	if content, err := os.ReadFile(log); err != nil || string(content) != want+"balancer ends\nreplica ends\nserver ends\n" {
		t.Errorf("the log is %q (%v)", content, err)
	}
}

// Its caller has no process that it could end.
func TestAChildWhoseStartIsCancelledIsEnded(t *testing.T) {
	k := labtest.StartSupervisor(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Run(cancelled, shell(k, "sleep 1000 # "+k.Folder())); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v, want %v", err, context.Canceled)
	}
	next := must.Get(k.Run(t.Context(), shell(k, "exit 0")))(t) // requests are served in their order
	<-next.Done()
	all := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, file := range all {
		if args, err := os.ReadFile(file); err == nil && strings.Contains(string(args), "sleep 1000 # "+k.Folder()) {
			t.Errorf("%s is there: %q", file, args)
		}
	}
}

func TestNothingIsLeftWhenTheClientIsKilled(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			folder, pid, client := startClient(t)
			grandchild := awaitGrandchild(t, folder)
			must.Do(t, client.Process.Signal(signal))
			_ = client.Wait() // ended by our signal
			assertGone(t, folder, pid, grandchild)
		})
	}
}

func TestNothingIsLeftWhenTheSupervisorIsKilled(t *testing.T) {
	k := labtest.StartSupervisor(t)
	p := must.Get(k.Run(t.Context(), shell(k, `exec sleep 1000`)))(t)
	must.Do(t, syscall.Kill(k.Pid(), syscall.SIGKILL))
	<-p.Done()
	must.Do(t, k.Close())
	assertGone(t, k.Folder(), p.Pid())
}

func TestDoneTellsHowAChildEnded(t *testing.T) {
	k := labtest.StartSupervisor(t)
	p := must.Get(k.Run(t.Context(), shell(k, `echo oh dear; exit 7`)))(t)
	<-p.Done()
	should.Be(t, p.State(), "exit status 7", "state is")
	if log, err := os.ReadFile(filepath.Join(k.Folder(), "log")); string(log) != "oh dear\n" {
		t.Errorf("the log is %q (%v), want what the child printed", log, err)
	}
}

func TestWhatAChildLeavesBehindIsEnded(t *testing.T) {
	k := labtest.StartSupervisor(t)
	p := must.Get(k.Run(t.Context(), shell(k, `sleep 1000 & echo $!`)))(t)
	<-p.Done()
	orphan := awaitNumber(t, filepath.Join(k.Folder(), "log"))
	eventually(t, "the orphan to be gone", func() bool { return !alive(orphan) })
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	k := labtest.StartSupervisor(t)
	_, err := k.Run(t.Context(), servers.Command{Path: "/nonexistent/mariadbd", Log: filepath.Join(k.Folder(), "log")})
	if err == nil || !strings.Contains(err.Error(), "mariadbd") {
		t.Errorf("error is %v, want one that names the program", err)
	}
}

func TestSignalsReachAChild(t *testing.T) {
	k := labtest.StartSupervisor(t)
	p := must.Get(k.Run(t.Context(), shell(k, `trap "echo heard; exit 3" USR1; echo $$; while :; do sleep 0.01; done`)))(t)
	awaitNumber(t, filepath.Join(k.Folder(), "log"))
	must.Do(t, p.Signal(syscall.SIGUSR1))
	<-p.Done()
	should.Be(t, p.State(), "exit status 3", "state is")
	// What its supervisor does not end by, a child does.
	for signal, want := range map[syscall.Signal]string{
		syscall.SIGINT: "signal: interrupt", syscall.SIGHUP: "signal: hangup", syscall.SIGTERM: "signal: terminated", syscall.SIGPIPE: "signal: broken pipe",
	} {
		p := must.Get(k.Run(t.Context(), servers.Command{Path: "/bin/sleep", Args: []string{"1000"}, Log: os.DevNull}))(t)
		must.Do(t, p.Signal(signal))
		select {
		case <-p.Done():
			should.Be(t, p.State(), want, "state is")
		case <-time.After(limit):
			t.Fatalf("it does not end by %s", signal)
		}
	}
}

func TestAPausedChildIsStopped(t *testing.T) {
	k := labtest.StartSupervisor(t)
	p := must.Get(k.Run(t.Context(), shell(k, `sleep 1000`)))(t)
	must.Do(t, p.Signal(syscall.SIGSTOP))
	must.Do(t, p.Stop(t.Context()))
}

func startClient(t *testing.T) (folder string, pid int, client *exec.Cmd) {
	t.Helper()
	client = exec.Command(os.Args[0], clientArgument)
	out := must.Get(client.StdoutPipe())(t)
	must.Do(t, client.Start())
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	if _, err := fmt.Sscan(line, &folder, &pid); err != nil {
		t.Fatalf("client printed %q: %v", line, err)
	}
	return folder, pid, client
}

func awaitGrandchild(t *testing.T, folder string) int {
	t.Helper()
	return awaitNumber(t, filepath.Join(folder, "log"))
}

// awaitNumber waits until a child has printed a process id.
func awaitNumber(t *testing.T, log string) int {
	t.Helper()
	var number int
	eventually(t, "a process id in the log", func() bool {
		content, err := os.ReadFile(log)
		if err != nil || !strings.Contains(string(content), "\n") {
			return false
		}
		number, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	})
	return number
}

func assertGone(t *testing.T, folder string, pids ...int) {
	t.Helper()
	eventually(t, "the folder to be gone", func() bool {
		_, err := os.Stat(folder)
		return err != nil && os.IsNotExist(err)
	})
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d to be gone", pid), func() bool { return !alive(pid) })
	}
}

// alive tells whether a process runs; one that has ended and waits to be
// noticed by its parent does not.
func alive(pid int) bool {
	stat, err := fs.ReadFile(os.DirFS("/proc"), fmt.Sprintf("%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

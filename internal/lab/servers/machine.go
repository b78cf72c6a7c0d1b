package servers

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/procfs"

	"github.com/stockd/stockd/internal/telemetry"
)

// Machine is what a run ran on, and which stockd it was.
type Machine struct {
	// CPU is the model, or the architecture where that is not known.
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"`
	// Memory is for people, such as "24 GiB", or empty.
	Memory string `json:"memory,omitempty"`
	OS     string `json:"os"`
	Go     string `json:"go"`
	// Commit is what stockd was built from, with "and changes" where that is not
	// all, or "unknown".
	Commit string `json:"commit"`
	// Load is the machine's load average over a minute when the run began: what
	// else went on.
	Load string `json:"load,omitempty"`
}

// ThisMachine is the machine that we run on, and the stockd that we are.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Processors: runtime.NumCPU(), OS: runtime.GOOS, Go: runtime.Version(), Commit: commit()}
	if model := lineOf("/proc/cpuinfo", "model name", ":"); model != "" {
		m.CPU = model
	}
	if total := lineOf("/proc/meminfo", "MemTotal", ":"); total != "" {
		if bytes, err := humanize.ParseBytes(strings.Replace(total, "kB", "KiB", 1)); err == nil {
			m.Memory = humanize.IBytes(bytes)
		}
	}
	if name := lineOf("/etc/os-release", "PRETTY_NAME", "="); name != "" {
		m.OS = strings.Trim(name, `"`)
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.OS += ", " + runtime.GOOS + " " + strings.TrimSpace(string(kernel))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

func lineOf(file, name, separator string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // another system keeps it elsewhere
	}
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, separator); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The figures of Resident.
const (
	CurrentMemory = "VmRSS"
	PeakMemory    = "VmHWM"
)

// Resident is the resident memory of a process in bytes, Now or at its Peak, as Linux
// counts it.
func Resident(pid int, figure string) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	if figure == PeakMemory {
		return int64(status.VmHWM), nil //nolint:gosec // no machine has so much
	}
	return int64(status.VmRSS), nil //nolint:gosec // no machine has so much
}

func commit() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return "unknown"
	}
	return telemetry.Commit(info)
}

// Lines say it for people.
func (m Machine) Lines() []string {
	load := ""
	if m.Load != "" {
		load = ", load average " + m.Load + " at the beginning"
	}
	return []string{
		fmt.Sprintf("machine: %s, %d processors, memory %s%s", m.CPU, m.Processors, m.Memory, load),
		fmt.Sprintf("system: %s; %s; stockd of commit %s", m.OS, m.Go, m.Commit),
	}
}

// Processor is the processor time of a program.
type Processor struct{ User, System time.Duration }

// Used is the processor time that each program has used, by its name, with all that it has
// started; in steps of 10 ms, as Linux counts it. Programs that have ended are not counted.
func (k *Supervisor) Used() (map[string]Processor, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	used := make(map[string]Processor)
	for _, p := range k.all() {
		if p.Ended() {
			continue
		}
		sum := used[p.command.Name]
		for pid, stat := range all {
			if all.below(pid, p.Pid()) {
				sum.User += time.Duration(int(stat.UTime)+stat.CUTime) * tick // with its children that have ended
				sum.System += time.Duration(int(stat.STime)+stat.CSTime) * tick
			}
		}
		used[p.command.Name] = sum
	}
	return used, nil
}

// tick is the unit of the times in /proc.
const tick = 10 * time.Millisecond

// processTable has the processes of the machine by their ids.
type processTable map[int]procfs.ProcStat

// below reports whether a process is another, or was started by it or by one below it.
func (t processTable) below(pid, root int) bool {
	for pid > 1 {
		if pid == root {
			return true
		}
		pid = t[pid].PPID
	}
	return false
}

func processes() (processTable, error) {
	list, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("read processor time: %w", err)
	}
	all := make(processTable)
	for _, p := range list {
		if stat, err := p.Stat(); err == nil { // else it has ended meanwhile
			all[p.PID] = stat
		}
	}
	return all, nil
}

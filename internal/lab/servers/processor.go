package servers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Processor is the processor time of a program.
type Processor struct{ User, System time.Duration }

// Used is the processor time that each program has used, by its name, with all that it has
// started; in steps of 10 ms, as Linux counts it. Programs that have ended are not counted.
func (k *Supervisor) Used() (map[string]Processor, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	used := make(map[string]Processor)
	for _, p := range k.processes {
		if p.pid == 0 || p.ended() {
			continue
		}
		sum := used[p.name]
		for pid := range all {
			if all.below(pid, p.pid) {
				sum.User += all[pid].User
				sum.System += all[pid].System
			}
		}
		used[p.name] = sum
	}
	return used, nil
}

// process is one of the machine, with the time of its children that have ended.
type process struct {
	Processor
	parent int
}

type processTable map[int]process

// below reports whether a process is another, or was started by it or by one below it.
func (t processTable) below(pid, root int) bool {
	for pid > 1 {
		if pid == root {
			return true
		}
		pid = t[pid].parent
	}
	return false
}

// processes are all of the machine, by their ids.
func processes() (processTable, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("read processor time: %w", err)
	}
	all := make(processTable)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if all[pid], err = readStat(stat); err != nil {
			return nil, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
	}
	return all, nil
}

// The fields of /proc/PID/stat after the name, and the length of its ticks: see proc(5).
const (
	statParent = 1
	statUser   = 11 // and then system, user of ended children, system of ended children
	tick       = 10 * time.Millisecond
)

func readStat(stat []byte) (p process, err error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // a name may have blanks and parentheses
	if len(fields) < statUser+4 {
		return p, fmt.Errorf("%q is not understood", stat)
	}
	if p.parent, err = strconv.Atoi(fields[statParent]); err != nil {
		return p, err
	}
	for i, sum := range []*time.Duration{&p.User, &p.System, &p.User, &p.System} {
		ticks, err := strconv.ParseInt(fields[statUser+i], 10, 64)
		if err != nil {
			return p, err
		}
		*sum += time.Duration(ticks) * tick
	}
	return p, nil
}

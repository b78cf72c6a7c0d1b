package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakMemory is the most resident memory that a process has ever had, in
// bytes, as Linux counts it.
func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if kibibytes, is := strings.CutPrefix(line, "VmHWM:"); is {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kibibytes), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read memory of process %d: no VmHWM", pid)
}

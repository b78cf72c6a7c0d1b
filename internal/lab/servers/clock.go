package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Clock is what one server takes for the time. It is made by libfaketime, which
// stands between the server and the system.
type Clock struct {
	library, file string
}

// newClock is a clock that is right.
func newClock(folder string) (*Clock, error) {
	library, err := FindFaketime()
	if err != nil {
		return nil, err
	}
	c := &Clock{library: library, file: filepath.Join(folder, "clock")}
	return c, c.Set(0)
}

// FindFaketime looks for the library, in its form for programs with several
// threads, where systems put it.
func FindFaketime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime", "/usr/lib*/faketime", "/usr/local/lib*/faketime", "/usr/local/lib/*/faketime"} {
		found, err := filepath.Glob(filepath.Join(pattern, "libfaketimeMT.so.1"))
		if err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", &MissingError{What: fmt.Sprintf("libfaketime: %v", ErrNotFound), How: "apt-get install faketime brings it"}
}

// Set has the clock be so much ahead of the right time from now on, or behind it
// where ahead is negative; 0 is right again.
func (c *Clock) Set(ahead time.Duration) error {
	// The server reads the file at any moment: it must never find half of it.
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := os.Rename(next, c.file); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// env is what the server has to be started with. What measures how long something
// takes is no clock that anybody sets, and stays right.
//
// Redis's allocator asks for the time before libfaketime is ready to tell it, and
// neither gets on. With the C library named before it, its allocator is the one in
// use, which asks for nothing.
func (c *Clock) env() []string {
	return []string{
		"LD_PRELOAD=" + c.library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

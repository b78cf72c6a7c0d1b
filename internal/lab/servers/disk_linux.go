package servers

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// unwrittenPages is how many pages of a file the kernel has in memory and not, or not yet
// wholly, on the disk. The caller must own the file.
func unwrittenPages(file *os.File) (uint64, error) {
	var all unix.CachestatRange // to the end
	var seen unix.Cachestat_t
	err := unix.Cachestat(uint(file.Fd()), &all, &seen, 0)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, &MissingError{What: "a kernel that tells what is not on the disk yet", How: "Linux 6.5 does"}
	case err != nil:
		return 0, fmt.Errorf("ask what of %s is on the disk: %w", file.Name(), err)
	case seen.Cache == 0:
		return 0, &MissingError{
			What: "a file system that tells what is not on the disk yet", How: "TMPDIR names a folder on one that does, such as ext4",
		}
	}
	return seen.Dirty + seen.Writeback, nil
}

//go:build !linux

package servers

import "os"

func unwrittenPages(*os.File) (uint64, error) {
	return 0, &MissingError{What: "a kernel that tells what is not on the disk yet", How: "Linux 6.5 does"}
}

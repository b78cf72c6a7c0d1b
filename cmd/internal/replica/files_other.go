//go:build !unix

package replica

func fileLimit() (limit uint64, ok bool) { return 0, false }

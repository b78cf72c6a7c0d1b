package telemetry

import (
	"cmp"
	"runtime/debug"
)

// Commit is what the go command wrote into a program: the commit it was built from,
// with "and changes" where that is not all, or "unknown".
func Commit(info *debug.BuildInfo) string {
	facts := make(map[string]string)
	for _, s := range info.Settings {
		facts[s.Key] = s.Value
	}
	commit := cmp.Or(facts["vcs.revision"], "unknown")
	if facts["vcs.modified"] == "true" {
		commit += " and changes"
	}
	return commit
}

package telemetry_test

import (
	"runtime/debug"
	"testing"

	"github.com/stockd/stockd/internal/telemetry"
)

func TestABuildIsItsCommitAndWhatIsNotInIt(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":         nil,
		"abc":             {{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		"abd and changes": {{Key: "vcs.revision", Value: "abd"}, {Key: "vcs.modified", Value: "true"}},
		"abe":             {{Key: "vcs.revision", Value: "abe"}},
	} {
		if got := telemetry.Commit(&debug.BuildInfo{Settings: settings}); got != want {
			t.Errorf("a build of %v is %q, want %q", settings, got, want)
		}
	}
}

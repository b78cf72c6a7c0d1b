package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/api"
)

// install has npm install packages, and returns how to run one of their commands beside the description.
// The test is skipped where npm cannot.
func install(t *testing.T, packages ...string) (run func(command string, args ...string)) {
	t.Helper()
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	npm := exec.CommandContext(ctx, "npm", append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder}, packages...)...)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install %v: %v\n%s", packages, err, out)
	}
	if err := os.WriteFile(filepath.Join(folder, "openapi.yaml"), api.Description, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(command string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", command), args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v\n%s", command, args, err, out)
		}
	}
}

func TestAPublicLinterAcceptsTheDescription(t *testing.T) {
	run := install(t, "@redocly/cli@2.11.1")
	run("redocly", "lint", "openapi.yaml")
}

func TestTypesOfTheDescriptionCompile(t *testing.T) {
	run := install(t, "openapi-typescript@7.13.0", "typescript@5.9.3")
	run("openapi-typescript", "openapi.yaml", "--output", "api.ts")
	run("tsc", "--noEmit", "--strict", "api.ts")
}

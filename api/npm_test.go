package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/api"
	"github.com/stockd/stockd/internal/must"
)

// bin has the commands of the packages that are installed.
const bin = "node_modules/.bin/"

// install has npm install packages, and returns how to run a command beside them and the description.
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
	must.Do(t, os.WriteFile(filepath.Join(folder, "openapi.yaml"), api.Description, 0o600))
	return func(command string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, command, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v\n%s", command, args, err, out)
		}
	}
}

// lint is what redocly's command does, whose package brings ten times as much.
const lint = `const { lint, createConfig, formatProblems, getTotals } = require('@redocly/openapi-core');
createConfig({ extends: ['recommended'] }).then(async (config) => {
	const problems = await lint({ ref: 'openapi.yaml', config });
	const totals = getTotals(problems);
	formatProblems(problems, { format: 'stylish', totals, version: '' });
	process.exit(totals.errors > 0 ? 1 : 0);
});`

func TestAPublicLinterAcceptsTheDescription(t *testing.T) {
	run := install(t, "@redocly/openapi-core@2.11.1")
	run("node", "-e", lint)
}

func TestTypesOfTheDescriptionCompile(t *testing.T) {
	run := install(t, "openapi-typescript@7.13.0", "typescript@5.9.3")
	run(bin+"openapi-typescript", "openapi.yaml", "--output", "api.ts")
	run(bin+"tsc", "--noEmit", "--strict", "api.ts")
}

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// container is what a manifest of the chart starts.
type container struct {
	Name string
	Args []string
	Env  []struct{ Name, Value string }
}

// with replaces in its arguments and variables what is another here than in a cluster.
func (c container) with(here *strings.Replacer) (args, env []string) {
	for _, arg := range c.Args {
		args = append(args, here.Replace(arg))
	}
	for _, variable := range c.Env {
		if variable.Value != "" { // another one has the name of its pod
			env = append(env, variable.Name+"="+here.Replace(variable.Value))
		}
	}
	return args, env
}

// chartContainers are those of the manifests that the chart makes for a shop, by their names.
func chartContainers(t *testing.T) map[string]container {
	t.Helper()
	content, err := os.ReadFile("../../deploy/helm/testdata/shop.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type pod struct {
		InitContainers []container `yaml:"initContainers"`
		Containers     []container
	}
	all := make(map[string]container)
	for manifests := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var manifest struct {
			Spec struct {
				pod      `yaml:",inline"`
				Template struct{ Spec pod }
			}
		}
		err := manifests.Decode(&manifest)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		of, template := manifest.Spec.pod, manifest.Spec.Template.Spec
		for _, c := range slices.Concat(of.InitContainers, of.Containers, template.Containers) {
			all[c.Name] = c
		}
	}
}

// What the manifests of the chart start does what it is there for: the migration, a replica on the
// migrated schema as a user that may not change it, and the sale of helm test.
func TestWhatTheChartStartsSells(t *testing.T) {
	cmdtest.NeedDatabase(t, servers.MariaDB)
	d, err := servers.StartDatabase(t.Context(), labtest.StartSupervisor(t), servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	own, shop, secrets := seller(t, d), newSigner(t, "shop"), t.TempDir()
	shop.writeKeys(t, filepath.Join(secrets, "buyer-keys.json"))
	for file, secret := range map[string]string{
		"admin-token": cmdtest.Token, "database-password": own.Password, "owner-password": d.Password, "test-buyer.jwt": shop.token(t, "helm-test"),
	} {
		if err := os.WriteFile(filepath.Join(secrets, file), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := chartContainers(t)
	here := strings.NewReplacer("/run/secrets/stockd", secrets, "/etc/stockd/stockd.yaml", production,
		"shop@tcp(db:3306)/shop", own.DSN, "owner@tcp(db:3306)/shop", d.DSN)
	runChartCommand(t, all["migrate"], here)

	args, env := all["stockd"].with(here)
	// The test's own token is in a variable, and so is its kind of database.
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "STOCKD_ADMIN_TOKEN_FILE=") })
	r := startReplicaWith(t, append(env, "STOCKD_DATABASE_DRIVER=mysql"), append(args[1:], "--http-drain-delay=0s")...)

	here = strings.NewReplacer("/run/secrets/stockd", secrets, "http://shop-stockd-admin:8081", r.AdminURL, "http://shop-stockd:80", r.URL)
	for range 2 { // helm test may be run again
		runChartCommand(t, all["stock"], here)
		runChartCommand(t, all["buy"], here)
	}
	if audit, err := labtest.Open(t, d, "auditor").Audit(t.Context(), 999_999_999); err != nil || audit.Sold != 2 || audit.Stock != 8 || !audit.Clean {
		t.Errorf("the audit is %+v, %v; want 2 of 10 sold", audit, err)
	}
}

// runChartCommand runs what a container runs, to its end.
func runChartCommand(t *testing.T, c container, here *strings.Replacer) {
	t.Helper()
	args, env := c.with(here)
	if len(args) == 0 {
		t.Fatal("the chart does not have it")
	}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	if status, out, errOut := stockd(args...); status != cli.OK {
		t.Fatalf("%v: exit status %d\n%s%s", args, status, out, errOut)
	}
}

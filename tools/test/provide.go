package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/stockd/stockd/internal/lab/servers"
)

// need is something that the tests use.
type need struct {
	name     string // what a test that lacks it calls it
	find     func() error
	packages []string // of Debian and its relatives
}

func needs() []need {
	zookeeper := func() error { _, _, err := servers.FindZooKeeper(); return err }
	galera := func() error { _, _, err := servers.FindGalera(); return err }
	faketime := func() error { _, err := servers.FindFaketime(); return err }
	return []need{
		{"mariadb", program("mariadbd"), []string{"mariadb-server"}},
		{"galera", galera, []string{"mariadb-server", "galera-4", "rsync", "iproute2"}},
		{"nginx", program("nginx"), []string{"nginx-light"}},
		{"redis", program("redis-server"), []string{"redis-server"}},
		{"zookeeper", zookeeper, []string{"zookeeper"}},
		{"etcd", program("etcd"), []string{"etcd-server"}},
		{"prometheus", program("prometheus"), []string{"prometheus"}},
		{"faketime", faketime, []string{"faketime"}},
		{"curl", program("curl"), []string{"curl"}},
		{"ip", program("ip"), []string{"iproute2"}},
		{"chromium", program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), []string{"chromium"}},
	}
}

// compiler is what the race detector uses.
func compiler() need {
	return need{"gcc", program("gcc", "cc"), []string{"gcc", "libc6-dev"}}
}

// program finds one of the names.
func program(names ...string) func() error {
	return func() error { _, err := servers.Find(names...); return err }
}

func names(list []need) []string {
	all := make([]string, len(list))
	for i, n := range list {
		all[i] = n.name
	}
	return all
}

// provide installs what is missing and returns the names of what still is.
func provide(ctx context.Context, list []need) (missing []string) {
	absent := absentOf(list)
	if len(absent) > 0 {
		if err := installAll(ctx, absent); err != nil {
			fmt.Println("could not install:", err)
		}
		absent = absentOf(list)
	}
	for _, n := range absent {
		fmt.Printf("%s is missing: what needs it is skipped; apt-get install %s brings it\n", n.name, strings.Join(n.packages, " "))
	}
	return names(absent)
}

func absentOf(list []need) (absent []need) {
	for _, n := range list {
		if n.find() != nil {
			absent = append(absent, n)
		}
	}
	return absent
}

// installAll installs Debian packages. The servers in them are not started: the
// tests start private ones.
func installAll(ctx context.Context, absent []need) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("this system has no apt-get")
	}
	var packages []string
	for _, n := range absent {
		packages = append(packages, n.packages...)
	}
	fmt.Println("installing with apt-get:", strings.Join(packages, " "))
	// policy-rc.d keeps the packages from starting their servers.
	script := `set -e
		[ -e /usr/sbin/policy-rc.d ] || {
			printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
			chmod +x /usr/sbin/policy-rc.d
			trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		}
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends "$@" >/dev/null`
	args := append([]string{"sh", "-c", script, "sh"}, packages...)
	if os.Getuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

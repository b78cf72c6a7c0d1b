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
	// name is what a test that lacks it calls it.
	name  string
	found func() bool
	// packages bring it on Debian and its relatives.
	packages []string
}

func needs() []need {
	return []need{
		{name: "mariadb", found: program("mariadbd"), packages: []string{"mariadb-server"}},
		{name: "galera", found: galera, packages: []string{"mariadb-server", "galera-4", "rsync", "iproute2"}},
		{name: "nginx", found: program("nginx"), packages: []string{"nginx-light"}},
		{name: "redis", found: program("redis-server"), packages: []string{"redis-server"}},
		{name: "zookeeper", found: zookeeper, packages: []string{"zookeeper"}},
		{name: "etcd", found: program("etcd"), packages: []string{"etcd-server"}},
		{name: "prometheus", found: program("prometheus"), packages: []string{"prometheus"}},
		{name: "faketime", found: faketime, packages: []string{"faketime"}},
		{name: "curl", found: program("curl"), packages: []string{"curl"}},
		{name: "ip", found: program("ip"), packages: []string{"iproute2"}},
		{name: "chromium", found: program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), packages: []string{"chromium"}},
	}
}

// compiler is what the race detector uses.
func compiler() need {
	return need{name: "gcc", found: program("gcc", "cc"), packages: []string{"gcc", "libc6-dev"}}
}

// program is found where one of the names is.
func program(names ...string) func() bool {
	return func() bool {
		_, err := servers.Find(names...)
		return err == nil
	}
}

// zookeeper is no program, but classes and a Java to run them.
func zookeeper() bool {
	_, _, err := servers.FindZooKeeper()
	return err == nil
}

// galera is a library of MariaDB's, and what sends a node the state of another one.
func galera() bool {
	_, _, err := servers.FindGalera()
	return err == nil
}

// faketime is a library, which moves the clock of a Redis.
func faketime() bool {
	_, err := servers.FindFaketime()
	return err == nil
}

func names(list []need) []string {
	all := make([]string, len(list))
	for i, n := range list {
		all[i] = n.name
	}
	return all
}

// provide installs what is missing and returns the names of what still is.
func provide(ctx context.Context, list []need, install bool) (missing []string) {
	absent := absentOf(list)
	if len(absent) > 0 && install {
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
		if !n.found() {
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

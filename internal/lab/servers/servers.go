// Package servers starts the servers that a run needs, privately: on free
// loopback ports, with their data in the folder of a supervisor, which removes it.
// It also makes their faults, each at a moment that the test knows: links that are
// cut, slow, hung or frozen, requests that are held, replies that are lost, processes
// that are paused, sessions that expire and clocks that jump.
package servers

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Mode says where a backend is to come from.
type Mode string

// The modes.
const (
	Auto     Mode = "auto"     // local where the program is found, embedded otherwise
	Embedded Mode = "embedded" // in this process; nothing to install
	Local    Mode = "local"    // a real server found on this machine
	None     Mode = "none"     // nowhere: a backend that a choice leaves out
	External Mode = "yours"    // running already, and left running
)

// Info says what a run ran on.
type Info struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Started is "embedded", "local" or "yours".
	Started Mode `json:"started"`
}

// String is the name with the version.
func (i Info) String() string { return strings.TrimSpace(i.Name + " " + i.Version) }

// Line names what a run ran on, such as "database: MariaDB 10.11 (local)".
func Line(on map[string]Info) string {
	list := make([]string, 0, len(on))
	for _, backend := range slices.Sorted(maps.Keys(on)) {
		list = append(list, fmt.Sprintf("%s: %s (%s)", backend, on[backend], on[backend].Started))
	}
	return strings.Join(list, ", ")
}

// ErrNotFound is the error of a server whose program is not on this machine.
var ErrNotFound = errors.New("not found on this machine")

// MissingError is an ErrNotFound that says how to install the server.
type MissingError struct {
	// What is missing, and How it comes to this machine.
	What, How string
}

func (e *MissingError) Error() string { return e.What + "; " + e.How }

// Unwrap is ErrNotFound.
func (*MissingError) Unwrap() error { return ErrNotFound }

// Find looks for a program on PATH and in the folders where systems put what
// is not for everyone.
func Find(names ...string) (string, error) {
	if runtime.GOOS == "windows" { // their scripts, signals and sockets are those of Unix
		return "", fmt.Errorf("%s: %w: on Windows no server is started, in WSL it is", strings.Join(names, " or "), ErrNotFound)
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, folder := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/libexec", "/opt/homebrew/bin", "/opt/homebrew/sbin"} {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", strings.Join(names, " or "), ErrNotFound)
}

// Choice is where each backend is to come from: "local", or with exceptions
// "local,database=sqlite,zookeeper=none".
type Choice struct {
	Mode Mode
	// Database is "sqlite", "mariadb", "mysql" or "vitess", or empty for any server.
	Database string
	// Redis (the five of Redlock, too), ZooKeeper and Etcd are where they are to
	// come from instead, or empty.
	Redis, ZooKeeper, Etcd Mode
	// Only names what a run needs beside the database, and no other server is started; nil: all are.
	Only []string
	// Volatile has a local database leave its commits to the operating system: they
	// survive its death, and not that of the machine.
	Volatile bool
	// Options are more of the command line of a local database, separated by blanks, and Security is what it requires
	// of its clients; nil: a password alone.
	Options  string
	Security *Security
}

// ParseChoice reads a choice as it is given on the command line.
func ParseChoice(text string) (Choice, error) {
	mode, rest, _ := strings.Cut(text, ",")
	c := Choice{Mode: Mode(mode)}
	if !slices.Contains([]Mode{Auto, Embedded, Local}, c.Mode) {
		return Choice{}, fmt.Errorf("%q is not auto, embedded or local", mode)
	}
	for _, given := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		if !c.except(given) {
			return Choice{}, fmt.Errorf("%q is not %s", given, Exceptions)
		}
		if c.Mode == Embedded && c.Database != "" && c.Database != SQLite {
			return Choice{}, fmt.Errorf("%q has no embedded form; allowed with embedded is database=sqlite", given)
		}
	}
	return c, nil
}

// Exceptions are what may follow the mode of a choice, in words.
const Exceptions = "database=sqlite|mariadb|mysql|vitess, redis=embedded|local|none, zookeeper=local|none or etcd=local|none"

// except takes one exception over, and reports whether it is one.
func (c *Choice) except(given string) bool {
	member, kind, _ := strings.Cut(given, "=")
	if member == "database" {
		c.Database = kind
		return slices.Contains([]string{SQLite, MariaDB, MySQL, OnVitess}, kind)
	}
	from := map[string]*Mode{"redis": &c.Redis, "zookeeper": &c.ZooKeeper, "etcd": &c.Etcd}[member]
	if from == nil {
		return false
	}
	*from = Mode(kind)
	return *from == Local || *from == None || *from == Embedded && member == "redis"
}

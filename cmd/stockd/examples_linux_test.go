package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// notRun are the commands that cannot run in this test, by how their lines begin. A
// whole block is left out where its other commands need that one.
var notRun = []struct {
	command string
	block   bool
	reason  string
}{
	{"make test", false, "this test is a part of it"},
	{"go run ./cmd/stocklab demo", false, "it takes half a minute: TestDemoLocal runs it with a smaller stock"},
	{"go run ./cmd/stocklab live", false, "it runs until it is ended: TestThePage runs it"},
	{"go run ./cmd/stocklab lab run all", false, "it takes five minutes: TestProveEveryExperimentIsReproduced runs it"},
	{"docker compose up", true, "it needs a Docker engine: TestCompose has one"},
	{"apt-get install --yes mariadb-server", true, "the test's machines have these packages, and the files of stockd's"},
	{"mariadb-dump", false, "it needs the database of the reader"},
	{"STOCKD_DATABASE_DRIVER=mysql", true, "it needs the database and the password file of the reader"},
}

// documented are the pages whose examples run, with what a reader has started before.
func documented(t *testing.T) map[string]string {
	const (
		start = `export STOCKD_ADMIN_TOKEN=please-change-this-token TOKEN=please-change-this-token
echo "$TOKEN" >token
%s &
curl --retry 30 --retry-delay 1 --retry-connrefused localhost:8080/readyz
for item in 1 2; do curl -H "Authorization: Bearer $TOKEN" -d goods_id=$item -d stock=100 localhost:8081/goods; done`
	)
	shop := fmt.Sprintf(start, "stockd serve")
	return map[string]string{
		"README.md": "", "docs/api.md": "", "docs/feed.md": "", "docs/lab.md": "", "docs/buyers.md": "",
		"docs/operators-hour.md": "REPOSITORY=" + must.Get(filepath.Abs(repository))(t) + "; export REPOSITORY; . \"$REPOSITORY/cmd/stockd/testdata/machines.sh\"",
		"docs/choosing.md":       shop, "docs/clients.md": shop, "docs/reservations.md": shop, "docs/operations.md": shop, "docs/sale.md": shop,
	}
}

// Every example of these documents runs as it is pasted, in the order of the page, in
// one shell. An answer of 400 or above fails it, unless the block names the status.
func TestDocumentedExamplesRun(t *testing.T) {
	needNamespace(t)
	stocklab := filepath.Join(t.TempDir(), "stocklab") // it is no part of this test binary
	build := exec.CommandContext(t.Context(), "go", "build", "-o", stocklab, "./cmd/stocklab")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build stocklab: %v\n%s", err, out)
	}
	used := make([]bool, len(notRun))
	for path, begin := range documented(t) {
		text := must.Get(os.ReadFile(filepath.Join(repository, path)))(t)
		examples, err := readExamples(string(text))
		if err != nil || len(examples) == 0 {
			t.Fatalf("%s has %d examples: %v", path, len(examples), err)
		}
		for i := range examples {
			leaveOut(&examples[i], used)
		}
		if begin != "" {
			examples = slices.Insert(examples, 0, example{language: "sh", text: begin})
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel() // each has a network of its own
			if strings.Contains(begin, "machines.sh") {
				needMachines(t)
			}
			runExamples(t, document{path, examples, t.TempDir(), stocklab})
		})
	}
	for i, known := range notRun {
		if !used[i] {
			t.Errorf("no example has %q any more", known.command)
		}
	}
}

// leaveOut empties the lines of an example that are not run.
func leaveOut(e *example, used []bool) {
	lines := strings.Split(e.text, "\n")
	for n, line := range lines {
		for i, known := range notRun {
			if !strings.HasPrefix(line, known.command) {
				continue
			}
			used[i], lines[n] = true, ""
			if known.block {
				e.text = ""
				return
			}
		}
	}
	e.text = strings.Join(lines, "\n")
}

// inNamespace has a command run in a network of its own, where the ports that the
// documents name are free, and in a group of processes that ends with the test.
func inNamespace(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func needNamespace(t *testing.T) {
	t.Helper()
	for _, program := range []string{"curl", "ip"} {
		_, err := exec.LookPath(program)
		labtest.Need(t, program, err == nil, "apt-get install curl iproute2 brings it")
	}
	err := inNamespace(exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up")).Run()
	labtest.Need(t, "namespace", err == nil, "root may make a network namespace")
}

// needMachines skips a test where machines.sh cannot make machines with these servers.
func needMachines(t *testing.T) {
	t.Helper()
	labtest.Need(t, "root", os.Getuid() == 0, "it makes file systems and networks")
	for _, program := range []string{"mariadbd", "redis-server", "nginx", "prometheus", "envsubst", "jq", "systemd-sysusers"} {
		_, err := exec.LookPath(program)
		labtest.Need(t, program, err == nil, "apt-get install mariadb-server redis-server nginx-light prometheus gettext-base jq systemd brings it")
	}
}

// document is one that is executed.
type document struct {
	path     string
	examples []example
	// folder has the outputs, and what the shell finds on its PATH.
	folder   string
	stocklab string
}

func runExamples(t *testing.T, d document) {
	work := t.TempDir()
	d.install(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	shell := "sh"
	if slices.ContainsFunc(d.examples, func(e example) bool { return e.language == "bash" }) {
		shell = "bash"
	}
	session := inNamespace(exec.CommandContext(ctx, shell, filepath.Join(d.folder, "session")))
	session.Dir = work
	session.Env = append(cmdtest.Environment(), "CURL_HOME="+d.folder, "PATH="+d.folder+":"+os.Getenv("PATH"))
	err := session.Run()
	// What the session has left in the background ends with it.
	if session.Process != nil {
		if err := session.Cancel(); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	done := d.check(t)
	if err != nil || done != len(d.examples) {
		t.Errorf("%s: %d of %d examples ran: %v", d.path, done, len(d.examples), err)
	}
}

// install writes the session, and the programs that it finds: stockd is this test
// binary, and go hands it out in the place of what it would compile from cmd/stockd.
func (d document) install(t *testing.T) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	compiler := must.Get(exec.LookPath("go"))(t)
	const stand = `#!/bin/sh
case "$1 $2 $3 $4" in
"build -o "*" ./cmd/stockd") mkdir -p "$(dirname "$3")" && exec ln -sf %[1]q "$3" ;;
"run ./cmd/stockd "*) shift 2; exec %[1]q "$@" ;;
"run ./cmd/stocklab "*) shift 2; exec %[3]q "$@" ;;
*) exec %[2]q "$@" ;;
esac
`
	for name, content := range map[string]string{
		"go":       fmt.Sprintf(stand, self, compiler, d.stocklab),
		"stockd":   fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", self),
		"stocklab": fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", d.stocklab),
		".curlrc":  "silent\nshow-error\nwrite-out = \"%{stderr}answered %{http_code} to %{method} %{url}\\n\"\n",
		"session":  d.session(t),
	} {
		must.Do(t, os.WriteFile(filepath.Join(d.folder, name), []byte(content), 0o700))
	}
}

func (d document) session(t *testing.T) string {
	t.Helper()
	script := []string{"set -e", "ip link set lo up"}
	for i, e := range d.examples {
		script = append(script, fmt.Sprintf("exec >%q 2>%q", d.output(i, "out"), d.output(i, "err")))
		if e.language == "go" {
			script = append(script, d.program(t, i))
			continue
		}
		script = append(script, e.text)
	}
	return strings.Join(append(script, fmt.Sprintf(": >%q", d.output(len(d.examples), "out")), ""), "\n")
}

func (d document) output(i int, kind string) string {
	return filepath.Join(d.folder, fmt.Sprintf("%d.%s", i, kind))
}

// program makes a program of a Go example, which may use ctx and a client c, and returns
// the command that runs it. The file exists for the compiler alone.
func (d document) program(t *testing.T, i int) string {
	t.Helper()
	root := must.Get(filepath.Abs(repository))(t)
	const prelude = "ctx, c := context.Background(), client.Client{URL: \"http://localhost:8080\"}\n_, _ = ctx, c\n"
	source := "package main\nimport \"context\"\nimport \"github.com/stockd/stockd/pkg/client\"\n"
	for _, name := range []string{"errors", "fmt", "log", "os", "time"} {
		if strings.Contains(d.examples[i].text, name+".") {
			source += fmt.Sprintf("import %q\n", name)
		}
	}
	source += "func main() {\n" + prelude + "{\n" + d.examples[i].text + "}\n}\n"
	overlay := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "documented", "main.go"): d.output(i, "go"),
	}}))(t)
	must.Do(t, errors.Join(os.WriteFile(d.output(i, "go"), []byte(source), 0o600), os.WriteFile(d.output(i, "json"), overlay, 0o600)))
	return fmt.Sprintf("go build -C %q -overlay %q -o %q ./documented && %[3]q", root, d.output(i, "json"), d.output(i, "program"))
}

var (
	statuses  = regexp.MustCompile(`(?m)^answered (\d{3}) to .*$`)
	announced = regexp.MustCompile(`#.*\b([45]\d\d)\b`)
)

// check compares what the examples have printed and been answered, and returns how many
// ran to their end.
func (d document) check(t *testing.T) (done int) {
	t.Helper()
	for i, e := range d.examples {
		if _, err := os.Stat(d.output(i+1, "out")); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s:%d: this example fails:\n%s%s", d.path, e.line, e.text, d.read(t, i, "err"))
			return done
		}
		done++
		errOut := d.read(t, i, "err")
		for _, answer := range statuses.FindAllStringSubmatch(errOut, -1) {
			if status := answer[1]; (status >= "400" || status == "000") && !strings.Contains(e.text+e.shown, status) {
				t.Errorf("%s:%d: %s, which the example does not name: %s", d.path, e.line, answer[0], d.read(t, i, "out"))
			}
		}
		for _, status := range announced.FindAllStringSubmatch(e.text, -1) {
			if !strings.Contains(errOut, "answered "+status[1]) {
				t.Errorf("%s:%d: the example says %s, and no answer has it:\n%s", d.path, e.line, status[1], errOut)
			}
		}
		if e.format != "" && e.text != "" {
			should.Fail(t, compare(e.format, e.shown, d.read(t, i, "out")), nil, d.path, e.line)
		}
	}
	return done
}

func (d document) read(t *testing.T, i int, kind string) string {
	t.Helper()
	content := must.Get(os.ReadFile(d.output(i, kind)))(t)
	return string(content)
}

// example is a fenced block of a document that is executed: sh, bash or go.
type example struct {
	line     int // of its fence
	language string
	text     string
	// shown is the output of the block as the document shows it, in a json, http or text
	// block after it, or in an unmarked one next to it; format is "" where there is none.
	format, shown string
}

var (
	block   = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```[ \t]*$")
	section = regexp.MustCompile(`(?m)^#+ `)
	// command is how a line begins that a reader would paste into a shell.
	command = regexp.MustCompile(`(?m)^(?: {4})?(?:\$ |[A-Z_]+=\S+ |(?:bin/|\./)?(?:stockd|curl|docker|go|make|export|redis-cli|mysql) [a-z'"$-])`)
)

// readExamples lists the examples of a document. A block that looks like one and does
// not say so is an error, and so is an output without its command.
func readExamples(text string) (list []example, err error) {
	end := 0
	for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:at[0]], "\n")
		language, content, between := text[at[2]:at[3]], text[at[4]:at[5]], text[end:at[0]]
		end = at[1]
		if found := command.FindString(between); strings.HasPrefix(found, "    ") {
			err = errors.Join(err, fmt.Errorf("before line %d: %q is a command in an indented block: fence it as sh", line, found))
		}
		if language == "" && len(list) > 0 && strings.TrimSpace(between) == "" {
			language = "text"
		}
		switch language {
		case "sh", "bash", "go":
			list = append(list, example{line: line, language: language, text: content})
		case "json", "http", "text":
			last := len(list) - 1
			if last < 0 || list[last].format != "" || section.MatchString(between) {
				err = errors.Join(err, fmt.Errorf("line %d: no example before this output", line))
				continue
			}
			list[last].format, list[last].shown = language, content
		default:
			if command.MatchString(content) {
				err = errors.Join(err, fmt.Errorf("line %d: the block has a command: mark it as sh", line))
			}
		}
	}
	return list, err
}

// differs are the JSON fields whose values no two runs share.
var differs = []string{"order_id", "request_id", "instance", "replica", "created_at", "wait_ms", "hold_ms", "token", "version"}

// shapes are what differs in any text: ids, times, durations, versions.
var shapes = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{20,}\b`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "<time>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s|m)\b`), "<duration>"},
	{regexp.MustCompile(`\bv?\d+\.\d+\.\d+\S*`), "<version>"},
}

// compare returns how an output differs from what the document shows, where … stands
// for anything.
func compare(format, shown, got string) error {
	switch format {
	case "json":
		return compareJSON(shown, got)
	case "http":
		return compareHTTP(shown, strings.ReplaceAll(got, "\r\n", "\n"))
	default:
		return compareText(shown, got)
	}
}

func compareText(shown, got string) error {
	for _, s := range shapes {
		shown, got = s.pattern.ReplaceAllString(shown, s.name), s.pattern.ReplaceAllString(got, s.name)
	}
	shown, got = strings.TrimSpace(shown), strings.TrimSpace(got)
	want := strings.ReplaceAll(regexp.QuoteMeta(shown), "…", "(?s:.*)")
	if !regexp.MustCompile("^" + want + "$").MatchString(got) {
		return fmt.Errorf("the document shows\n%s\nand the output is\n%s", shown, got)
	}
	return nil
}

// compareHTTP finds each line of the head that is shown, in any order, and compares the body.
func compareHTTP(shown, got string) error {
	head, body, _ := strings.Cut(shown, "\n\n")
	gotHead, gotBody, _ := strings.Cut(got, "\n\n")
	for line := range strings.Lines(strings.TrimSpace(head)) {
		same := func(other string) bool { return compareText(line, other) == nil }
		if !slices.ContainsFunc(strings.Split(gotHead, "\n"), same) {
			return fmt.Errorf("the document shows %q, which the answer lacks:\n%s", strings.TrimSpace(line), gotHead)
		}
	}
	if strings.TrimSpace(body) == "" {
		return nil
	}
	return compareJSON(body, gotBody)
}

// compareJSON compares the values that follow each other in both texts.
func compareJSON(shown, got string) error {
	want, err := normal(shown)
	if err != nil {
		return fmt.Errorf("read what the document shows: %w", err)
	}
	have, err := normal(got)
	if err != nil {
		return fmt.Errorf("read the output %q: %w", got, err)
	}
	return compareText(want, have)
}

// normal writes JSON in one way, without what differs.
func normal(text string) (string, error) {
	var out strings.Builder
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		var value any
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return out.String(), nil
		case err != nil:
			return "", err
		}
		line, err := json.MarshalIndent(masked(value), "", "  ")
		if err != nil {
			return "", err
		}
		out.Write(append(line, '\n'))
	}
}

// masked has the name of a field in the place of a value that differs. One that is empty stays.
func masked(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if slices.Contains(differs, name) && fmt.Sprint(inner) != "" {
				v[name] = name
			} else {
				v[name] = masked(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = masked(v[i])
		}
	}
	return value
}

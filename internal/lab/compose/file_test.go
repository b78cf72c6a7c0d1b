// Package compose tests docker-compose.yml against what docs/compose.md says of it. What
// needs no Docker is tested always; the rest is run by go test -tags compose.
package compose

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// root is where docker-compose.yml is.
const root = "../../.."

// file is what of docker-compose.yml is looked at.
type file struct {
	Services map[string]service
	Networks map[string]struct{ Internal bool }
	Secrets  map[string]any
}

type service struct {
	Image       string
	Extends     struct{ File, Service string }
	Build       struct{ Args map[string]string }
	Ports       []string
	Profiles    []string
	User        string
	Tmpfs       []string
	Volumes     []string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	MemLimit    string   `yaml:"mem_limit"`
	Networks    []string
	NetworkMode string `yaml:"network_mode"`
	Privileged  bool
	Restart     string
	Command     any
	Entrypoint  any
	Environment map[string]string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct{ Test []string }
	StopGrace   string `yaml:"stop_grace_period"`
	Logging     struct{ Options map[string]string }
}

func readText(t *testing.T, name string) string {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join(root, name)))(t)
	return string(content)
}

func readFile(t *testing.T, name string) (f file) {
	t.Helper()
	must.Do(t, yaml.Unmarshal([]byte(readText(t, name)), &f))
	return f
}

func read(t *testing.T) file {
	t.Helper()
	return readFile(t, "docker-compose.yml")
}

// ours tells the containers of stockd from those of the public images.
func (s service) ours() bool {
	return strings.HasPrefix(s.Image, "stockd:") || strings.HasPrefix(s.Image, "stocklab:")
}

func TestOnlyNginxAndWhatIsLookedAtIsPublishedAndOnlyOnTheLoopback(t *testing.T) {
	f := read(t)
	published := []string{"nginx", "live", "grafana", "jaeger", "prometheus"}
	for name, s := range f.Services {
		if !slices.Contains(published, name) && len(s.Ports) > 0 {
			t.Errorf("%s publishes %v, want %q alone to publish ports", name, s.Ports, published)
		}
		for _, port := range s.Ports {
			if name == "live" {
				port = strings.TrimPrefix(port, "${LIVE_ADDRESS:-") // a class is let in on purpose
			}
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want the loopback unless it is chosen", name, port)
			}
		}
		should.Be(t, len(s.Networks) == 0, s.NetworkMode == "none", "its networks are not named", name, s.Networks)
		for _, network := range s.Networks {
			if !slices.Contains(published, name) && !f.Networks[network].Internal {
				t.Errorf("%s is on %s, which has a way out", name, network)
			}
		}
	}
}

// members lists the services of a network.
func (f file) members(network string) (names []string) {
	for name, s := range f.Services {
		if slices.Contains(s.Networks, network) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A balancer that was taken over reaches no store.
func TestNginxReachesNoStore(t *testing.T) {
	f := read(t)
	for _, network := range f.Services["nginx"].Networks {
		for _, name := range f.members(network) {
			if !slices.Contains([]string{"demo", "grafana", "jaeger", "live", "nginx", "prometheus", "stock", "stockd"}, name) {
				t.Errorf("nginx reaches %s on %s", name, network)
			}
		}
	}
}

// etcd answers every client until etcd-users has ended: until then nothing else is on its
// network.
func TestEtcdIsAloneUntilItHasUsers(t *testing.T) {
	f := read(t)
	for _, name := range f.members("etcd") {
		if name == "etcd" || name == "etcd-users" {
			continue
		}
		should.Be(t, f.Services[name].DependsOn["etcd-users"].Condition, "service_completed_successfully", "… is on the network of etcd, and waits for etcd-users until", name)
	}
	should.Equal(t, f.Services["etcd"].Networks, []string{"etcd"}, "the networks of etcd")
}

// capabilities are those that a service keeps, each for the entrypoint of its image.
func capabilities() map[string][]string {
	redis := []string{"SETGID", "SETUID"}
	return map[string][]string{
		"redis": redis, "redlock-1": redis, "redlock-2": redis, "redlock-3": redis, "redlock-4": redis, "redlock-5": redis,
		"zookeeper": {"CHOWN", "SETGID", "SETUID"},
	}
}

func TestEveryContainerIsBounded(t *testing.T) {
	for name, s := range read(t).Services {
		if s.MemLimit == "" {
			t.Errorf("%s has no bound of its memory", name)
		}
		if s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
			t.Errorf("%s has no bound of its log", name)
		}
		if s.Privileged || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may gain privileges", name)
		}
		if !s.ReadOnly {
			t.Errorf("%s may write to its root", name)
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.CapAdd, capabilities()[name]) {
			t.Errorf("%s drops %v and adds %v, want ALL and %v", name, s.CapDrop, s.CapAdd, capabilities()[name])
		}
		if ends := s.Restart == "no"; !ends && !s.ours() && len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s has no health check, and its image has none", name)
		}
	}
}

// The replicas listen on every address of their network, where deduct.choose is off by
// default.
func TestTheDemonstrationLetsRequestsChoose(t *testing.T) {
	services := read(t).Services
	should.Be(t, services["stockd"].Environment["STOCKD_DEDUCT_CHOOSE"], "true", "STOCKD_DEDUCT_CHOOSE")
	should.Be(t, services["nginx"].Environment["STOCKD_UPSTREAM"], "$$upstream_addr", "STOCKD_UPSTREAM")
}

// files are what it reads of this repository, by where it finds them.
func (s service) files() map[string]string {
	found := make(map[string]string)
	for _, volume := range s.Volumes {
		if parts := strings.Split(volume, ":"); strings.HasPrefix(parts[0], "./") {
			found[parts[1]] = parts[0]
		}
	}
	return found
}

// secrets are where a service reads them, by volume.
func (s service) secrets() map[string]string {
	found := make(map[string]string)
	for _, volume := range s.Volumes {
		if parts := strings.Split(volume, ":"); strings.HasPrefix(parts[0], "secret-") {
			found[parts[0]] = strings.Join(parts[1:], ":")
		}
	}
	return found
}

func TestEachServiceHasOnlyTheSecretsThatItReads(t *testing.T) {
	f := read(t)
	used := regexp.MustCompile(`/run/secrets/([a-z-]+)/`)
	for name, s := range f.Services {
		if name == "secrets" {
			continue
		}
		content := must.Get(yaml.Marshal(s))(t)
		for _, file := range s.files() { // the scripts that it runs, and its configuration
			if strings.HasSuffix(file, ".sh") || strings.HasSuffix(file, ".yml") {
				content = append(content, readText(t, file)...)
			}
		}
		want := make(map[string]string)
		for _, match := range used.FindAllSubmatch(content, -1) {
			want["secret-"+string(match[1])] = "/run/secrets/" + string(match[1]) + ":ro"
		}
		if got := s.secrets(); !maps.Equal(got, want) {
			t.Errorf("%s mounts %v, want %v", name, got, want)
		}
		if got := s.DependsOn["secrets"].Condition; len(want) > 0 && got != "service_completed_successfully" {
			t.Errorf("%s starts with %q of secrets, want it after they are written", name, got)
		}
	}
}

func TestSecretsAreMadeAtTheFirstStart(t *testing.T) {
	f := read(t)
	made := f.Services["secrets"]
	command := must.Get(yaml.Marshal(made.Command))(t)
	for volume, at := range made.secrets() {
		if !bytes.Contains(command, []byte(" "+at+"/")) && !bytes.Contains(command, []byte("'"+at+"/")) {
			t.Errorf("no secret is written into %s", volume)
		}
	}
	for name, s := range f.Services {
		for volume := range s.secrets() {
			if made.secrets()[volume] == "" {
				t.Errorf("%s reads %s, which is not written", name, volume)
			}
		}
	}
	if made.NetworkMode != "none" || len(made.DependsOn) > 0 || len(f.Secrets) > 0 {
		t.Errorf("secrets has the network %q, waits for %v, and the file has others: %v", made.NetworkMode, made.DependsOn, f.Secrets)
	}
}

func TestNoSecretIsCommitted(t *testing.T) {
	known, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", "token", "admin.token", "run").Output()
	if err != nil || len(known) > 0 {
		t.Errorf("git knows %q (%v)", known, err)
	}
}

// What git ignores may hold secrets, and is no part of the build.
func TestTheBuildSeesWhatGitKnows(t *testing.T) {
	lines := func(name string) (found []string) {
		for line := range strings.Lines(readText(t, name)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				found = append(found, line)
			}
		}
		return found
	}
	var want []string
	for _, pattern := range lines(".gitignore") {
		if rooted, ok := strings.CutPrefix(pattern, "/"); ok {
			want = append(want, rooted)
		} else {
			want = append(want, "**/"+pattern) // .dockerignore means the root by a bare name
		}
	}
	should.Equal(t, lines(".dockerignore"), want, ".dockerignore")
}

func TestImagesAreLocked(t *testing.T) {
	const lock = "images.lock.yml"
	locked, reference := readFile(t, lock).Services, regexp.MustCompile(`^[a-z0-9./-]+:[a-zA-Z0-9._-]+(@sha256:[0-9a-f]{64})?$`)
	for name, s := range locked {
		references := slices.Collect(maps.Values(s.Build.Args))
		if s.Image != "" {
			references = append(references, s.Image)
		}
		for _, image := range references {
			if !reference.MatchString(image) {
				t.Errorf("%s of %s is no tag with its digest", image, name)
			}
		}
	}
	for name, s := range read(t).Services {
		if !s.ours() && s.Image != "" {
			t.Errorf("%s names %s itself", name, s.Image)
		}
		if _, ok := locked[s.Extends.Service]; (!s.ours() || name == "stockd") && (!ok || s.Extends.File != lock) {
			t.Errorf("%s takes its image from %q of %q", name, s.Extends.Service, s.Extends.File)
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^ARG (\w+)=(\S+)$`).FindAllStringSubmatch(readText(t, "Dockerfile"), -1) {
		if tag, _, _ := strings.Cut(locked["stockd"].Build.Args[match[1]], "@"); tag != match[2] {
			t.Errorf("the Dockerfile has %s=%s, and the lock %q", match[1], match[2], tag)
		}
	}
}

// The replicas may not change the schema: migrate does, as another user.
func TestReplicasHaveAUserThatSells(t *testing.T) {
	services := read(t).Services
	for name, want := range map[string]string{"stockd": "stockd@", "migrate": "owner@"} {
		if got := services[name].Environment["STOCKD_DATABASE_DSN"]; !strings.HasPrefix(got, want) {
			t.Errorf("%s connects as %s, want %s", name, got, want)
		}
	}
	should.Be(t, services["stockd"].Environment["STOCKD_DATABASE_MIGRATE"], "false", "STOCKD_DATABASE_MIGRATE")
	const grant = "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON stockd.* TO 'stockd'@'%';"
	users := readText(t, "deploy/compose/mysql-users.sh")
	if strings.Count(users, "GRANT") != 1 || !strings.Contains(users, grant) {
		t.Errorf("mysql-users.sh grants something else than %q", grant)
	}
}

// A server is waited for until it is healthy, what ends until it has ended well: else a replica starts before
// its schema, or nginx before the item is on sale.
func TestEachServiceStartsWhenWhatItNeedsIsThere(t *testing.T) {
	services := read(t).Services
	for name, want := range map[string][]string{
		"stockd": {"etcd-users", "migrate", "mysql-users", "redis", "secrets", "zookeeper"}, "migrate": {"mysql", "secrets"}, "mysql-users": {"mysql", "secrets"},
		"etcd-users": {"etcd", "secrets"}, "stock": {"secrets", "stockd"}, "nginx": {"stock"},
		// compose would start the replicas that these needed, and one would be three again.
		"demo": {"secrets"}, "live": {"secrets"},
	} {
		should.Equal(t, slices.Sorted(maps.Keys(services[name].DependsOn)), want, "… waits for", name)
	}
	for name, s := range services {
		for needed, on := range s.DependsOn {
			want := "service_healthy"
			if services[needed].Restart == "no" {
				want = "service_completed_successfully"
			}
			should.Be(t, on.Condition, want, "… waits for … until", name, needed)
		}
	}
}

// An order of redis-stock, and a vote of redlock, is on the disk before it is answered, and is never evicted.
func TestARedisKeepsWhatItAnswered(t *testing.T) {
	for _, s := range read(t).Services {
		if s.Extends.Service != "redis" {
			continue
		}
		should.Contain(t, fmt.Sprint(s.Command), "--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction", "--requirepass")
	}
}

// Purchases in flight end before a replica is killed, and Go collects its garbage before the kernel kills it.
func TestAReplicaHasTheTimeAndTheMemoryThatItNeeds(t *testing.T) {
	s := read(t).Services["stockd"]
	t.Setenv("STOCKD_HTTP_DRAIN_DELAY", s.Environment["STOCKD_HTTP_DRAIN_DELAY"])
	c := must.Get(config.Load("", nil))(t)
	grace, err := time.ParseDuration(s.StopGrace)
	if err != nil || grace <= c.HTTP.DrainDelay+c.HTTP.Drain+2*time.Second {
		t.Errorf("it is killed after %s (%v), and drains for %s and %s", s.StopGrace, err, c.HTTP.DrainDelay, c.HTTP.Drain)
	}
	least, wrong := humanize.ParseBytes(s.Environment["GOMEMLIMIT"])
	most, err := humanize.ParseBytes(s.MemLimit + "iB") // compose counts in 1024
	if err := errors.Join(err, wrong); err != nil || least >= most {
		t.Errorf("Go may use %s of %s (%v)", s.Environment["GOMEMLIMIT"], s.MemLimit, err)
	}
}

// A session of ZooKeeper ends up to a tick after its time, and a name is free within lock.ttl and a second. The server
// grants lock.ttl, and no less.
func TestASessionOfZooKeeperEndsInTime(t *testing.T) {
	content := must.Get(os.ReadFile(filepath.Join(root, "deploy", "compose", "zoo.cfg")))(t)
	c := must.Get(config.Load("", nil))(t)
	of := func(key string) time.Duration {
		for line := range strings.Lines(string(content)) {
			if value, ok := strings.CutPrefix(line, key+"="); ok {
				d, err := time.ParseDuration(strings.TrimSpace(value) + "ms")
				should.Do(t, err)
				return d
			}
		}
		t.Errorf("there is no %s", key)
		return 0
	}
	if tick, longest := of("tickTime"), of("maxSessionTimeout"); tick > time.Second/2 || longest < c.Lock.TTL {
		t.Errorf("a tick is %s and a session lasts for up to %s, with lock.ttl %s", tick, longest, c.Lock.TTL)
	}
}

// The admin API rejects a name that it does not know.
func TestTheAdminAPIIsCalledByNamesThatItKnows(t *testing.T) {
	services := read(t).Services
	known, seen := strings.Split(services["stockd"].Environment["STOCKD_ADMIN_HOSTS"], ","), 0
	for name, s := range services {
		for _, found := range regexp.MustCompile(`--admin-url=http://([^:]+):8081`).FindAllStringSubmatch(fmt.Sprint(s.Command, s.Entrypoint), -1) {
			if seen++; !slices.Contains(known, found[1]) {
				t.Errorf("%s calls the admin API %s, which knows itself as %q", name, found[1], known)
			}
		}
	}
	should.Be(t, seen, 3, "services that call the admin API: stock, demo and live")
}

// Docker makes an empty folder of a file that is not there.
func TestEachFileThatIsMountedIsThere(t *testing.T) {
	for name, s := range read(t).Services {
		for _, file := range s.files() {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s reads %s: %v", name, file, err)
			}
		}
	}
}

// Grafana has no user to log in as: what a visitor may do is all that can be done.
func TestVisitorsOfGrafanaOnlyLook(t *testing.T) {
	environment := read(t).Services["grafana"].Environment
	for name, want := range map[string]string{
		"GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_AUTH_DISABLE_LOGIN_FORM": "true", "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
	} {
		should.Be(t, environment[name], want, name)
	}
}

// What watches finds what it reads: Prometheus its rules and the replicas, Grafana its Prometheus and the dashboard.
func TestWhatWatchesFindsWhatItReads(t *testing.T) {
	services := read(t).Services
	decode := func(file string, into any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(readText(t, file)), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	shared := func(a, b string) bool {
		return slices.ContainsFunc(services[a].Networks, func(n string) bool { return slices.Contains(services[b].Networks, n) })
	}

	prometheus, grafana := services["prometheus"].files(), services["grafana"].files()
	var scrapes struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			DNS []struct{ Names []string } `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(prometheus["/etc/prometheus/prometheus.yml"], &scrapes)
	for _, rules := range scrapes.Rules {
		if prometheus["/etc/prometheus/"+rules] == "" {
			t.Errorf("Prometheus does not have %s", rules)
		}
	}
	if len(scrapes.Rules) != 1 || len(scrapes.Scrape) != 1 || !slices.Equal(scrapes.Scrape[0].DNS[0].Names, []string{"stockd"}) || !shared("prometheus", "stockd") {
		t.Errorf("Prometheus reads %+v from %v, want the replicas", scrapes, services["prometheus"].Networks)
	}

	var sources struct{ Datasources []struct{ Type, URL string } }
	decode(grafana["/etc/grafana/provisioning/datasources/stockd.yml"], &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" || !shared("grafana", "prometheus") {
		t.Errorf("Grafana reads %+v, want the Prometheus that is there", sources)
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(grafana["/etc/grafana/provisioning/dashboards/stockd.yml"], &dashboards)
	home := services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(dashboards.Providers) != 1 || filepath.Dir(home) != dashboards.Providers[0].Options.Path || grafana[home] != "./deploy/stockd.dashboard.json" {
		t.Errorf("Grafana shows %+v and first %s, which is %q", dashboards, home, grafana[home])
	}
	if got := services["stockd"].Environment["STOCKD_TRACE_ENDPOINT"]; got != "${TRACE_ENDPOINT:-}" || !shared("jaeger", "stockd") {
		t.Errorf("replicas send traces to %s, and Jaeger is on %v", got, services["jaeger"].Networks)
	}
}

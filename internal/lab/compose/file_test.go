// Package compose holds docker-compose.yml to what it promises. What needs no
// Docker is looked at always; the rest is run by go test -tags compose.
package compose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// root is where docker-compose.yml is.
const root = "../../.."

// file is what of docker-compose.yml is looked at.
type file struct {
	Services map[string]service
	Secrets  map[string]struct{ File string }
}

type service struct {
	Image       string
	Ports       []string
	Profiles    []string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	MemLimit    string   `yaml:"mem_limit"`
	Networks    []string
	Privileged  bool
	Restart     string
	Environment map[string]string
	Healthcheck struct{ Test []string }
}

func read(t *testing.T) (f file) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// ours tells the containers of stockd from those of the public images.
func (s service) ours() bool { return strings.HasPrefix(s.Image, "stockd:") }

func TestOnlyNginxIsPublishedAndOnlyOnTheLoopback(t *testing.T) {
	for name, s := range read(t).Services {
		if name != "nginx" && (len(s.Ports) > 0 || !slices.Equal(s.Networks, []string{"backend"})) {
			t.Errorf("%s publishes %v and is on %v; only nginx may be reached from outside", name, s.Ports, s.Networks)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want the loopback only", name, port)
			}
		}
	}
}

func TestEveryContainerIsBounded(t *testing.T) {
	for name, s := range read(t).Services {
		if s.MemLimit == "" {
			t.Errorf("%s has no bound of its memory", name)
		}
		if s.Privileged || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may gain privileges", name)
		}
		if s.ours() && (!s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"})) {
			t.Errorf("%s can write to its root (%v) or has capabilities (dropped %v)", name, !s.ReadOnly, s.CapDrop)
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
	if got := services["stockd"].Environment["STOCKD_DEDUCT_CHOOSE"]; got != "true" {
		t.Errorf("STOCKD_DEDUCT_CHOOSE is %q, want true", got)
	}
	if got := services["nginx"].Environment["STOCKD_UPSTREAM"]; got != "$$upstream_addr" {
		t.Errorf("STOCKD_UPSTREAM is %q, want nginx's own variable", got)
	}
}

func TestSecretsAreFilesOnly(t *testing.T) {
	f := read(t)
	for name, s := range f.Secrets {
		path := strings.Replace(s.File, "${SECRETS_DIR:-./secrets}", filepath.Join(root, "secrets"), 1)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("a fresh clone has no example of %s: %v", name, err)
		}
		for of, s := range f.Services {
			for key, value := range s.Environment {
				if strings.Contains(value, strings.TrimSpace(string(content))) {
					t.Errorf("%s of %s holds %s; it should name its file", key, of, name)
				}
			}
		}
	}
}

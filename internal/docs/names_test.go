package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stockd/stockd/api"
	"github.com/stockd/stockd/internal/backend"
)

// Every route that a document names is described, whatever stands for its parameters.
func TestRoutesThatAreNamedExist(t *testing.T) {
	var routes []string // as GET /goods/*
	path := ""
	parameter := regexp.MustCompile(`/(\{\w+\}|:\w+|[0-9]+|…)`)
	for line := range strings.SplitSeq(string(api.Description), "\n") {
		if found := regexp.MustCompile(`^  (/\S*):`).FindStringSubmatch(line); found != nil {
			path = parameter.ReplaceAllString(found[1], "/*")
		}
		if found := regexp.MustCompile(`^    (get|post|put|patch|delete):`).FindStringSubmatch(line); found != nil {
			routes = append(routes, strings.ToUpper(found[1])+" "+path)
		}
	}
	named := regexp.MustCompile("`((?:GET|POST|PUT|PATCH|DELETE) /[^`? ]*)")
	for _, page := range files(t, ".md") {
		for _, found := range named.FindAllStringSubmatch(read(t, page), -1) {
			wanted := parameter.ReplaceAllString(found[1], "/*")
			method, rest, _ := strings.Cut(wanted, " ")
			last := strings.LastIndex(rest, "/") // PUT /strategies/etcd
			if !slices.Contains(routes, wanted) && !slices.Contains(routes, method+" "+rest[:last]+"/*") {
				t.Errorf("%s: %s is not described", page, found[1])
			}
		}
	}
}

// Every metric that a document, an alert or the dashboard names is in the table of docs/observation.md,
// which a test holds to the program.
func TestMetricsThatAreNamedExist(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(stockd_\\w+)").FindAllStringSubmatch(read(t, "docs/observation.md"), -1)
	metrics := make([]string, len(rows))
	for i, row := range rows {
		metrics[i] = row[1]
	}
	of := regexp.MustCompile(`\bstockd_[a-z_]+[a-z](_\*)?`)
	others := []string{"stockd_secret", "stockd_sell"} // a secret of compose, and a user of the database
	pages := append(files(t, ".md"), "deploy/stockd.rules.yml", "deploy/stockd.dashboard.json")
	for _, page := range pages {
		for _, name := range of.FindAllString(read(t, page), -1) {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			if !strings.HasSuffix(name, "*") && !slices.Contains(metrics, base) && !slices.Contains(metrics, name) && !slices.Contains(others, name) {
				t.Errorf("%s: there is no metric %s", page, name)
			}
		}
	}
}

// Every type of problem that a document names beside its status is described, and each that is described
// is named in a document.
func TestProblemsThatAreNamedExist(t *testing.T) {
	described := make(map[string]bool) // by their types: whether a document names them
	for _, found := range regexp.MustCompile(`urn:stockd:problem:([a-z-]+)"`).FindAllStringSubmatch(string(api.Description), -1) {
		described[found[1]] = false
	}
	beside := regexp.MustCompile("\\b[45][0-9]{2} `([a-z-]+)`")
	quoted := regexp.MustCompile("`([a-z-]+)`")
	for _, page := range files(t, ".md") {
		text := read(t, page)
		for _, found := range beside.FindAllStringSubmatch(text, -1) {
			if _, ok := described[found[1]]; !ok {
				t.Errorf("%s: no problem is of the type %s", page, found[1])
			}
		}
		for _, found := range quoted.FindAllStringSubmatch(text, -1) {
			if _, ok := described[found[1]]; ok {
				described[found[1]] = true
			}
		}
	}
	for name, named := range described {
		if !named {
			t.Errorf("no document names the problem %s", name)
		}
	}
}

// The rights of users that documents and files give are those that every test runs with.
func TestRightsThatAreGivenAreThoseOfTheTests(t *testing.T) {
	for path, given := range map[string]string{
		"docs/tls.md":                   "ACL SETUSER stockd on >PASSWORD " + backend.RedisRights("stockd") + "\n",
		"docs/production.md":            "GRANT " + backend.SQLRights + " ON shop.* TO shop@",
		"deploy/compose/mysql-users.sh": "GRANT " + backend.SQLRights + ", EXECUTE ON stockd.* TO ",
	} {
		if !strings.Contains(read(t, path), given) {
			t.Errorf("%s does not give %q", path, given)
		}
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^ {0,3}```.*?^ {0,3}```[ \t]*$")
	span    = regexp.MustCompile("`[^`]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	named   = regexp.MustCompile(`<a id="([^"]+)">`)
)

// Every link to something in the repository leads there, with its anchor.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, from := range files(t, ".md") {
		text := span.ReplaceAllString(fence.ReplaceAllString(read(t, from), ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(found[1])
			if err != nil {
				t.Errorf("%s: link to %q: %v", from, found[1], err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			follow(t, from, target)
		}
	}
}

// A Chinese page that links to an English one says so in the same line.
func TestChinesePagesMarkWhatIsEnglish(t *testing.T) {
	chinese := func(page string) bool { return strings.Contains(page, "zh-CN") || strings.Contains(page, "lab/zh/") }
	for _, from := range files(t, ".md") {
		for line := range strings.SplitSeq(read(t, from), "\n") {
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				to, _, _ := strings.Cut(path.Join(path.Dir(from), found[1]), "#")
				if chinese(from) && strings.HasSuffix(to, ".md") && to != from && !chinese(to) && !strings.Contains(line, "英文") && !strings.Contains(line, "English") {
					t.Errorf("%s links to %s and does not say that it is English", from, found[1])
				}
			}
		}
	}
}

// follow goes where a link leads that stands in a document.
func follow(t *testing.T, from string, target *url.URL) {
	t.Helper()
	to := from
	if target.Path != "" {
		to = path.Join(path.Dir(from), target.Path)
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil || strings.HasPrefix(to, "../") {
		t.Errorf("%s links to %s, which is not there", from, target)
		return
	}
	if target.Fragment != "" && !anchors(read(t, to))[target.Fragment] {
		t.Errorf("%s links to %s, and %s has no such heading", from, target, to)
	}
}

// anchors are the names by which the headings of a document are reached, as GitHub
// makes them: of two that are the same the second has a number.
func anchors(text string) map[string]bool {
	names := make(map[string]bool)
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := anchor(found[1])
		for n := 1; names[name]; n++ {
			name = anchor(found[1]) + "-" + strconv.Itoa(n)
		}
		names[name] = true
	}
	for _, found := range named.FindAllStringSubmatch(text, -1) {
		names[found[1]] = true
	}
	return names
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

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

// Package nginx holds the configuration of the load balancer. It is used by
// everything that puts nginx before replicas.
package nginx

import (
	_ "embed" // for the files
	"os"
	"strings"
)

// site is the part that a deployment has in conf.d, main the rest.
var (
	//go:embed templates/stockd.conf.template
	site string
	//go:embed local.conf.template
	main string
)

// Local makes a whole configuration for an nginx that keeps all its files in
// folder, listens on an address and balances over replicas.
func Local(folder, listen string, replicas []string) string {
	var servers strings.Builder
	for _, address := range replicas {
		// None is ever taken out of turn: replicas are restarted one after the other,
		// and must not all be out. See the template.
		servers.WriteString("server " + address + " max_fails=0;\n    ")
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // the worker must reach the folder, too
	}
	values := map[string]string{
		"STOCKD_LISTEN":   listen,
		"STOCKD_REPLICAS": strings.TrimSpace(servers.String()),
		"STOCKD_FOLDER":   folder,
		"STOCKD_USER":     user,
	}
	values["STOCKD_SITE"] = fill(site, values)
	return fill(main, values)
}

// fill replaces ${NAME} for the names it has, and leaves nginx's own variables
// alone, as envsubst does in the public image.
func fill(template string, values map[string]string) string {
	for name, value := range values {
		template = strings.ReplaceAll(template, "${"+name+"}", value)
	}
	return template
}

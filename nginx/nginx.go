// Package nginx holds the configuration of the load balancer. It is used by
// everything that puts nginx before replicas.
package nginx

import (
	"cmp"
	_ "embed" // for the files
	"os"
	"strconv"
	"strings"
)

// problems and site are what a deployment has in conf.d, main the rest.
var (
	//go:embed templates/problems.conf.template
	problems string
	//go:embed templates/stockd.conf.template
	site string
	//go:embed local.conf.template
	main string
)

// Limits bound what clients may ask, and learn; 0 is more than any client asks.
type Limits struct {
	// Of one address: Rate is requests a second, Burst how many may come before their
	// time, Connections how many are served at once, up to 65535, and ConnectionRate
	// new connections a second.
	Rate, Burst, Connections, ConnectionRate int
	// The same of all addresses together.
	AllConnections, AllConnectionRate int
	// HideUpstream keeps the addresses of the replicas from clients.
	HideUpstream bool
}

// Local makes a whole configuration for an nginx that keeps all its files in
// folder, listens on an address and balances over replicas.
func Local(folder, listen string, replicas []string, limits Limits) string {
	const plenty = 1_000_000
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
	upstream := "$upstream_addr"
	if limits.HideUpstream {
		upstream = ""
	}
	values := map[string]string{
		"STOCKD_UPSTREAM": upstream,
		"STOCKD_LISTEN":   listen,
		"STOCKD_REPLICAS": strings.TrimSpace(servers.String()),
		"STOCKD_FOLDER":   folder,
		"STOCKD_FAILURES": folder + "/failures.log",
		"STOCKD_CACHE":    folder + "/goods",
		"STOCKD_USER":     user,

		"STOCKD_ADDRESS_RATE":        strconv.Itoa(cmp.Or(limits.Rate, plenty)),
		"STOCKD_ADDRESS_BURST":       strconv.Itoa(cmp.Or(limits.Burst, plenty)),
		"STOCKD_ADDRESS_CONNECTIONS": strconv.Itoa(cmp.Or(limits.Connections, 65535)),
		"STOCKD_CONNECTIONS":         strconv.Itoa(cmp.Or(limits.AllConnections, 65535)),

		"STOCKD_ADDRESS_CONNECTION_RATE": strconv.Itoa(cmp.Or(limits.ConnectionRate, plenty)),
		"STOCKD_CONNECTION_RATE":         strconv.Itoa(cmp.Or(limits.AllConnectionRate, plenty)),
	}
	values["STOCKD_SITE"] = fill(problems+site, values)
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

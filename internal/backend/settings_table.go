package backend

import (
	_ "embed"
	"strings"
)

const (
	// charset is the only one that text is sent in.
	charset = "utf8mb4"
	// OfCaller is the value of a setting that is among the options of a pool.
	OfCaller = "as configured"
	// galeraNode and groupMode tell whether a server is a node of a cluster.
	galeraNode    = "wsrep_on"
	groupMode     = "group_replication_single_primary_mode"
	serverVersion = "version"
)

//go:embed settings.txt
var settingsTable string

// Settings are the variables of MySQL 8.0 to 9.7 and of MariaDB 10.6 to 11.8 that a session inherits, or that it could
// be given by a DSN, and those of a server that change what a statement does. Those that are set are so in this order.
func Settings() (list []Setting) {
	allowed := allowedValues()
	for line := range strings.Lines(strings.ReplaceAll(settingsTable, "\n ", " ")) {
		kind, rest, ok := strings.Cut(line, ": ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		rest, why, _ := strings.Cut(rest, " -- ")
		names, value, _ := strings.Cut(rest, " =")
		names = strings.Join(strings.Fields(names), " ")
		list = append(list, Setting{
			Kind: SettingKind(kind), Names: names, Value: strings.TrimSpace(value), Why: strings.Join(strings.Fields(why), " "), ok: allowed[names],
		})
	}
	return list
}

// allowedValues judge the values of those that are checked or advised.
func allowedValues() map[string]func(value string, all map[string]string) bool {
	const minPacket, minPage = 4 << 20, 8 << 10
	return map[string]func(value string, all map[string]string) bool{
		"binlog_format":              func(value string, all map[string]string) bool { return value != "STATEMENT" || all["log_bin"] != "ON" },
		"wsrep_forced_binlog_format": oneOf("NONE", "ROW", "MIXED"),
		"sql_log_bin":                oneOf("ON"),
		"init_connect":               leavesNothing,
		"max_allowed_packet":         atLeast(minPacket),
		"innodb_page_size": func(value string, all map[string]string) bool {
			_, isMariaDB := all["old_mode"]
			return isMariaDB || atLeast(minPage)(value, all)
		},
		"innodb_default_row_format": oneOf("dynamic"),
		"enforce_storage_engine":    oneOf("", "InnoDB"),
		"disabled_storage_engines": func(value string, _ map[string]string) bool {
			return !strings.Contains(strings.ToLower(value), "innodb")
		},
		"system_versioning_asof":         oneOf("DEFAULT"),
		"innodb_flush_log_at_trx_commit": oneOf("1", "3"),
		"sync_binlog":                    func(value string, all map[string]string) bool { return value == "1" || all["log_bin"] != "ON" },
		"innodb_doublewrite":             oneOf("ON", "DETECT_AND_RECOVER"),
	}
}

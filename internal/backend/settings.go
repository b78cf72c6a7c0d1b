package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-sql-driver/mysql"
)

// SettingKind is what stockd does about a setting.
type SettingKind string

// The kinds of settings.
const (
	// SettingSet is set by each connection, whatever the server or the DSN says.
	SettingSet SettingKind = "set"
	// SettingNode is set, where the server is a node of a cluster.
	SettingNode SettingKind = "set on a node"
	// SettingChecked is read by each connection: a server that has it otherwise is rejected.
	SettingChecked SettingKind = "checked"
	// SettingAdvised is read by SQL.Settings alone.
	SettingAdvised SettingKind = "advised"
	// SettingExcluded is not allowed in a DSN: no server gives a session another value.
	SettingExcluded SettingKind = "not in a DSN"
	// SettingHarmless changes nothing that stockd relies on.
	SettingHarmless SettingKind = "no effect"
)

// Setting is what a session of MySQL or MariaDB inherits from its server, and what stockd does about it. A server
// need not have it.
type Setting struct {
	// Names are those of variables, separated by blanks.
	Names string
	Kind  SettingKind
	// Value is what it is set to, or the value that is wanted in words.
	Value string
	// Why says what it would change, or why it changes nothing.
	Why string

	ok func(value string, all map[string]string) bool
}

// SettingState is a setting as a server has it.
type SettingState struct {
	Setting

	Found string
	OK    bool
}

// String says what was found, and what is wanted.
func (s SettingState) String() string {
	return fmt.Sprintf("%s is %q, want %s: %s", s.Names, s.Found, s.Value, s.Why)
}

// SettingsError is a server that is set up in a way that stockd does not work with.
type SettingsError struct{ Wrong []SettingState }

// Error names each setting with what was found and what is wanted.
func (e *SettingsError) Error() string {
	wrong := make([]string, len(e.Wrong))
	for i, s := range e.Wrong {
		wrong[i] = s.String()
	}
	return "the server has settings that are not allowed: " + strings.Join(wrong, "; ")
}

// Settings reads each setting of the server that is SettingChecked or SettingAdvised, on a connection of its own, also where
// the pool rejects it. SQLite has none.
func (s *SQL) Settings(ctx context.Context) ([]SettingState, error) { return s.settings(ctx) }

func settingsBy(ctx context.Context, beside *sql.DB) (states []SettingState, err error) {
	defer func() { err = errors.Join(err, beside.Close()) }()
	conn, err := beside.Conn(ctx)
	if err != nil {
		return nil, err
	}
	err = conn.Raw(func(raw any) error {
		inner, ok := raw.(mysqlConn)
		if !ok {
			return fmt.Errorf("a connection of the driver is a %T", raw)
		}
		found, err := readSettings(ctx, inner)
		states = judgeSettings(found)
		return err
	})
	return states, errors.Join(err, conn.Close())
}

// SettingOf is the row of a variable.
func SettingOf(variable string) (Setting, bool) {
	all := Settings()
	i := slices.IndexFunc(all, func(s Setting) bool {
		return slices.ContainsFunc(strings.Fields(s.Names), func(name string) bool {
			ok, err := path.Match(name, variable)
			return ok && err == nil
		})
	})
	if i < 0 {
		return Setting{}, false
	}
	return all[i], true
}

// showsAll has a session show all of its variables: a server may cut that, too. A vtgate takes no greater limit.
const showsAll = `SET SESSION sql_select_limit = 9223372036854775807, sql_big_selects = 1`

// readSettings is every variable of the table that the session has.
func readSettings(ctx context.Context, conn mysqlConn) (map[string]string, error) {
	names := []string{galeraNode, groupMode, serverVersion, "log_bin"}
	for _, s := range Settings() {
		if s.Kind == SettingSet || s.ok != nil {
			names = append(names, strings.Fields(s.Names)...)
		}
	}
	if _, err := conn.ExecContext(ctx, showsAll, nil); err != nil {
		return nil, err
	}
	rows, err := readRows(ctx, conn, `SHOW SESSION VARIABLES WHERE Variable_name IN ('`+strings.Join(names, `', '`)+`')`)
	found := make(map[string]string, len(rows))
	for _, row := range rows {
		found[strings.ToLower(row[0])] = row[1]
	}
	if _, ok := found["sql_mode"]; !ok && err == nil {
		err = errors.New("the server shows no settings")
	}
	return found, err
}

// readRows reads an answer as text.
func readRows(ctx context.Context, conn mysqlConn, query string) (all [][]string, err error) {
	rows, err := conn.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	for err = rows.Next(values); err == nil; err = rows.Next(values) {
		row := make([]string, len(values))
		for i, value := range values {
			row[i] = fmt.Sprintf("%s", value)
		}
		all = append(all, row)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, errors.Join(err, rows.Close())
}

// judgeSettings are the checked and advised settings of what was found.
func judgeSettings(found map[string]string) (states []SettingState) {
	for _, s := range Settings() {
		if value, ok := found[s.Names]; ok && s.ok != nil {
			states = append(states, SettingState{Setting: s, Found: value, OK: s.ok(value, found)})
		}
	}
	return states
}

// checkSettings rejects a server by the names of its settings.
func checkSettings(found map[string]string) error {
	wrong := slices.DeleteFunc(judgeSettings(found), func(s SettingState) bool { return s.OK || s.Kind != SettingChecked })
	if len(wrong) > 0 {
		return &SettingsError{wrong}
	}
	return nil
}

// assignments are what a session needs that has a setting otherwise than it should. own has the values of settings that
// are the caller's.
func assignments(found, own map[string]string) (list []string) {
	for _, s := range Settings() {
		for name := range strings.FieldsSeq(s.Names) {
			is, has := found[name]
			value, ok := own[name]
			if !ok {
				value, ok = s.Value, s.Value != OfCaller
			}
			if s.Kind == SettingSet && has && ok && value != is {
				list = append(list, name+" = "+literal(value))
			}
		}
	}
	return list
}

// literal is a value as SET takes it: numbers have no quotes.
func literal(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return value
	}
	return "'" + value + "'"
}

// requireText rejects a DSN by the name of a parameter that alters what text means, that only harms, or that is not known.
func requireText(dsn string, c *mysql.Config) error {
	for name := range c.Params {
		if s, ok := SettingOf(strings.ToLower(name)); !ok || s.Kind == SettingExcluded {
			return fmt.Errorf("%s is not allowed in a DSN", name)
		}
	}
	_, parameters, _ := strings.Cut(dsn[strings.LastIndex(dsn, "/")+1:], "?")
	for parameter := range strings.SplitSeq(parameters, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		first, _, _ := strings.Cut(value, ",")
		if name == "charset" && first != charset || name == "collation" && !strings.HasPrefix(value, charset+"_") {
			return fmt.Errorf("%s is %q, want %s: the server would read text in another way than it is written", name, value, charset)
		}
	}
	return nil
}

func atLeast(least int) func(string, map[string]string) bool {
	return func(value string, _ map[string]string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= least
	}
}

func oneOf(values ...string) func(string, map[string]string) bool {
	return func(value string, _ map[string]string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, value) })
	}
}

// leavesNothing accepts statements after which a session is as it was, but for what is set again.
func leavesNothing(statements string, _ map[string]string) bool {
	words := strings.FieldsFunc(strings.ToLower(statements), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return !slices.ContainsFunc(words, func(word string) bool {
		s, ok := SettingOf(word)
		return ok && s.Kind == SettingExcluded || slices.Contains([]string{"begin", "start", "lock", "xa"}, word)
	})
}

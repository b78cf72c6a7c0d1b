package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the effective configuration as YAML, each value with its source. Secrets are
// masked. Keys that follow from a rule are left out where they have not been set.
func (l *Loaded) Print(w io.Writer) error {
	masked := l.Config
	masked.Database.DSN = maskDSN(masked.Database.DSN)
	shown := func(f field) bool { return !f.byRule || f.text() != f.def }
	return write(w, &masked, shown, func(b *strings.Builder, indent string, f field) {
		fmt.Fprintf(b, "%-44s # %s\n", indent+f.name()+": "+scalar(f.text()), l.Source(f.key))
	})
}

// Example writes a file that documents every key and its default.
func Example(w io.Writer) error {
	var c Config
	for _, f := range fields(&c) {
		if err := f.set(f.def); err != nil {
			return fmt.Errorf("default of %s: %w", f.key, err)
		}
	}
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	documented := func(f field) bool { return !f.byRule }
	return write(w, &c, documented, func(b *strings.Builder, indent string, f field) {
		fmt.Fprintf(b, "%s# %s\n%s%s: %s\n", indent, f.description(), indent, f.name(), scalar(f.text()))
	})
}

// head begins the documented file.
const head = `# Every key of stockd's configuration, with its default.
#
# A key can also be set by a variable (database.max_open is STOCKD_DATABASE_MAX_OPEN)
# and by a flag (--database-max-open). A flag wins over a variable, a variable over
# this file. stockd config prints the effective values and where each is from.
#
# Two rules add keys that are not repeated below:
#
# - Every secret may stand in a file of its own, whose path is the key with _file appended:
#   database.password_file (STOCKD_DATABASE_PASSWORD_FILE, --database-password-file). So may
#   admin.token, buyer.secret, zookeeper.auth and the passwords of redis, redlock and etcd.
# - redis, redlock, zookeeper and etcd have a section tls with the keys of database.tls.

`

// write lays out the sections that have a field to show; line writes one field.
func write(w io.Writer, c *Config, shown func(field) bool, line func(b *strings.Builder, indent string, f field)) error {
	var b strings.Builder
	sections(c).write(&b, "", shown, line)
	_, err := io.WriteString(w, b.String())
	return err
}

func (s section) write(b *strings.Builder, indent string, shown func(field) bool, line func(b *strings.Builder, indent string, f field)) {
	for _, p := range s.parts {
		switch {
		case p.group == nil && shown(*p.field):
			line(b, indent, *p.field)
		case p.group != nil && slices.ContainsFunc(p.group.fields(), shown):
			if indent == "" {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%s# %s\n%s%s:\n", indent, p.group.doc, indent, lastOf(p.group.key))
			p.group.write(b, indent+"  ", shown, line)
		}
	}
}

func (f field) name() string { return lastOf(f.key) }

func lastOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// scalar quotes a text where YAML would read it as something else.
func scalar(text string) string {
	if bare(text) {
		return text
	}
	quoted, err := yaml.Marshal(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text})
	if err != nil { // impossible: one scalar in UTF-8
		panic(err)
	}
	return strings.TrimSpace(string(quoted))
}

// bare reports whether YAML reads a text back from a line with a comment.
func bare(text string) bool {
	entries, err := parseYAML("", []byte("key: "+text+" # from"), func(string) bool { return true })
	return err == nil && len(entries) == 1 && !entries[0].null && entries[0].text == text && !strings.ContainsAny(text, "\r\n")
}

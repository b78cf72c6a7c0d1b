package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/internal/nearest"
	"github.com/stockd/stockd/internal/reload"
)

// Loaded is a configuration with the source of each value.
type Loaded struct {
	Config
	// sources maps a key to its file and line, its variable or its flag.
	sources map[string]string
}

// Source is where the value of a key is from: "stockd.yaml:12", "STOCKD_DATABASE_DSN",
// "--database-dsn" or "default".
func (l *Loaded) Source(key string) string {
	if s, ok := l.sources[key]; ok {
		return s
	}
	return "default"
}

// AddFlags adds one flag for each key. Those that another flag's description stands for are hidden.
func AddFlags(flags *pflag.FlagSet) {
	for _, f := range fields(new(Config)) {
		doc := f.description()
		if f.secret() != nil {
			doc += "; --" + f.flag() + "-file: a file that holds it"
		}
		if f.def != "" {
			doc += " (default " + f.def + ")"
		}
		flags.String(f.flag(), "", doc)
		flags.Lookup(f.flag()).Hidden = f.byRule
	}
}

// Load reads the file at path, if there is one, the environment, and the flags, which may be
// nil. It returns all errors at once; each names the key and where it was set.
func Load(path string, flags *pflag.FlagSet) (*Loaded, error) {
	l, err := Read(path, flags)
	if err != nil {
		return nil, err
	}
	l.impliedTLS()
	if err := errors.Join(l.readSecrets(), l.check()); err != nil {
		return nil, err
	}
	return l, nil
}

// Read is Load without the secrets, and without the checks that a replica makes before it starts: a
// running one keeps what it has read when a file breaks.
func Read(path string, flags *pflag.FlagSet) (*Loaded, error) {
	l := &Loaded{sources: make(map[string]string)}
	list := fields(&l.Config)
	inFile, err := l.readFile(path, list)
	errs := []error{err, unknownVariables(os.Environ(), list)}
	for _, f := range list {
		if err := f.set(l.text(f, inFile, flags)); err != nil {
			errs = append(errs, l.wrong(f.key, "%w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// text is the value of a key as its flag, its variable, the file or else its default has it, and records which.
func (l *Loaded) text(f field, inFile map[string]string, flags *pflag.FlagSet) string {
	text, ok := inFile[f.key]
	if !ok {
		text = f.def
	}
	if value, ok := os.LookupEnv(f.env()); ok {
		text, l.sources[f.key] = value, f.env()
	}
	if flags != nil && flags.Changed(f.flag()) {
		text, l.sources[f.key] = flags.Lookup(f.flag()).Value.String(), "--"+f.flag()
	}
	return text
}

// ReadBuyer reads the secret of buyers' tokens, and checks how they are verified, after Read.
func (l *Loaded) ReadBuyer() error {
	if secret := &l.Buyer.Secret; secret.File != "" {
		if err := l.readSecret("buyer.secret", secret); err != nil {
			return err
		}
	}
	return l.buyer()
}

// wrong names the key and where its value is from.
func (l *Loaded) wrong(key, format string, args ...any) error {
	return fmt.Errorf("%s: %s %w", l.Source(key), key, fmt.Errorf(format, args...))
}

// readFile returns what the file at path sets, by the keys.
func (l *Loaded) readFile(path string, list []field) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	content, err := reload.ReadText(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	known := func(key string) bool { return slices.ContainsFunc(list, func(f field) bool { return f.key == key }) }
	entries, err := parseYAML(path, content, known)
	if err != nil {
		return nil, err
	}
	inFile := make(map[string]string, len(entries))
	var errs []error
	for _, e := range entries {
		before, twice := l.sources[e.key]
		secret := func(f field) bool { return f.key == e.key && f.secret() != nil }
		switch {
		case e.cut && slices.ContainsFunc(list, secret):
			errs = append(errs, fmt.Errorf("%s: %s must be in quotes where it has a #; a comment begins with # and a blank", e.source, e.key))
		case e.null: // A key without a value keeps its default.
		case !known(e.key):
			errs = append(errs, fmt.Errorf("%s: %s is not a key%s", e.source, e.key, suggest(e.key, list, func(f field) string { return f.key })))
		case twice:
			errs = append(errs, fmt.Errorf("%s: %s is given twice, first at %s", e.source, e.key, before))
		default:
			inFile[e.key], l.sources[e.key] = e.text, e.source
		}
	}
	return inFile, errors.Join(errs...)
}

// unknownVariables rejects unknown variables with the prefix of stockd: they are settings that
// would be ignored.
func unknownVariables(environ []string, list []field) error {
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		known := func(f field) bool { return f.env() == name }
		if !strings.HasPrefix(name, EnvPrefix) || name == PathEnv || fromKubernetes(entry) || slices.ContainsFunc(list, known) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: is not a variable of stockd%s", name, suggest(name, list, field.env)))
	}
	return errors.Join(errs...)
}

// fromKubernetes recognizes the variables that Kubernetes sets in every pod next to a service called stockd, or
// stockd-admin, as the chart's.
func fromKubernetes(entry string) bool {
	return regexp.MustCompile(`^STOCKD_(\w+_)?(SERVICE_HOST=|SERVICE_PORT(_\w+)?=|PORT=(tcp|udp|sctp)://|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)`).MatchString(entry)
}

// PathEnv names the variable that holds the path of the file.
const PathEnv = EnvPrefix + "CONFIG"

func (l *Loaded) readSecrets() error {
	var errs []error
	for _, f := range fields(&l.Config) {
		if secret := f.secret(); secret != nil && secret.File != "" {
			errs = append(errs, l.readSecret(f.key, secret))
		}
	}
	return errors.Join(errs...)
}

func (l *Loaded) readSecret(key string, secret *Secret) error {
	if secret.value != "" {
		return l.wrong(key, "and %s_file are both set (%s)", key, l.Source(key+"_file"))
	}
	content, err := reload.ReadText(secret.File)
	if err != nil {
		return l.wrong(key+"_file", "cannot be read: %w", err)
	}
	secret.value = oneLine(string(content))
	if secret.value == "" {
		return l.wrong(key+"_file", "names an empty file")
	}
	l.sources[key] = secret.File
	return nil
}

// suggest names the known word that is nearest to a wrong one, if one is near.
func suggest(word string, list []field, name func(field) string) string {
	known := make([]string, len(list))
	for i, f := range list {
		known[i] = name(f)
	}
	if meant := nearest.Of(word, known); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

// entry is one scalar of a YAML file.
type entry struct {
	key    string // such as database.max_open
	text   string
	source string // file and line
	null   bool   // there is no value
	cut    bool   // a comment ends it that may be a part of it
}

// parseYAML lists the scalars of a file with their lines. Its errors show no value.
func parseYAML(path string, content []byte, isKey func(string) bool) ([]entry, error) {
	var document, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(content))
	err := documents.Decode(&document)
	if errors.Is(err, io.EOF) { // an empty file
		return nil, nil
	}
	if err == nil {
		err = documents.Decode(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return entriesOf(path, "", document.Content[0], isKey)
	case err == nil:
		return nil, fmt.Errorf("%s:%d: must be one document; another one begins with ---", path, second.Line)
	case strings.HasPrefix(err.Error(), "yaml: unknown anchor"): // it quotes the value, which may be a password
		return nil, fmt.Errorf("%s: a value that begins with * must be in quotes", path)
	default:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
}

func entriesOf(path, prefix string, node *yaml.Node, isKey func(string) bool) ([]entry, error) {
	if node.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: expected keys and values", path, node.Line)
	}
	var list []entry
	var errs []error
	for pair := range slices.Chunk(node.Content, 2) {
		name, value := pair[0], pair[1]
		key := prefix + name.Value
		source := fmt.Sprintf("%s:%d", path, name.Line)
		switch {
		case value.Kind == yaml.MappingNode && !isKey(key): // below a key it may be a secret in braces without quotes
			inner, err := entriesOf(path, key+".", value, isKey)
			list, errs = append(list, inner...), append(errs, err)
		case value.Kind == yaml.ScalarNode && (value.Anchor != "" || value.Style&yaml.TaggedStyle != 0 && value.Tag != "!!str"):
			errs = append(errs, fmt.Errorf("%s: %s must be in quotes: what begins with ! or & is no value in YAML", source, key))
		case value.Kind == yaml.ScalarNode:
			comment := strings.TrimLeft(name.LineComment+value.LineComment, "#")
			cut := value.Style == 0 && strings.TrimLeft(comment, " \t") == comment && comment != ""
			list = append(list, entry{key: key, text: value.Value, source: source, null: value.Tag == "!!null", cut: cut})
		default:
			errs = append(errs, fmt.Errorf("%s: %s must be one value, not a list, an alias or keys; write several addresses as one value, separated by commas, and what begins with [, { or * in quotes", source, key))
		}
	}
	return list, errors.Join(errs...)
}

package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Loaded is a configuration and where each of its values is from.
type Loaded struct {
	Config
	// sources maps a key to its file and line, its variable or its flag.
	sources map[string]string
}

// Source says where the value of a key is from: "stockd.yaml:12",
// "STOCKD_DATABASE_DSN", "--database-dsn" or "default".
func (l *Loaded) Source(key string) string {
	if s, set := l.sources[key]; set {
		return s
	}
	return "default"
}

// AddFlags adds one flag for each key.
func AddFlags(flags *pflag.FlagSet) {
	for _, f := range fields(new(Config)) {
		doc := f.doc
		if f.def != "" {
			doc += " (default " + f.def + ")"
		}
		flags.String(f.flag(), "", doc)
	}
}

// Load reads the file at path (none where it is empty), the environment and
// the flags, which may be nil. It reports everything that is wrong at once;
// each error names the key and where it was set.
func Load(path string, flags *pflag.FlagSet) (*Loaded, error) {
	l := &Loaded{sources: make(map[string]string)}
	list := fields(&l.Config)
	v := viper.New()
	v.AllowEmptyEnv(true)
	errs := []error{l.readFile(v, path, list), unknownVariables(os.Environ(), list)}
	for _, f := range list {
		if err := l.bind(v, f, flags); err != nil {
			errs = append(errs, err)
		} else if err := f.set(v.GetString(f.key)); err != nil {
			errs = append(errs, l.wrong(f.key, "%w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l.impliedTLS()
	if err := errors.Join(l.readSecrets(), l.check()); err != nil {
		return nil, err
	}
	return l, nil
}

// bind tells viper where the key may come from, and notes where it does come
// from.
func (l *Loaded) bind(v *viper.Viper, f field, flags *pflag.FlagSet) error {
	v.SetDefault(f.key, f.def)
	if err := v.BindEnv(f.key, f.env()); err != nil {
		return fmt.Errorf("bind %s: %w", f.env(), err)
	}
	if _, set := os.LookupEnv(f.env()); set {
		l.sources[f.key] = f.env()
	}
	if flags == nil {
		return nil
	}
	flag := flags.Lookup(f.flag())
	if flag.Changed {
		l.sources[f.key] = "--" + f.flag()
	}
	if err := v.BindPFlag(f.key, flag); err != nil {
		return fmt.Errorf("bind --%s: %w", f.flag(), err)
	}
	return nil
}

// wrong names the key and where its value is from.
func (l *Loaded) wrong(key, format string, args ...any) error {
	return fmt.Errorf("%s: %s %w", l.Source(key), key, fmt.Errorf(format, args...))
}

func (l *Loaded) readFile(v *viper.Viper, path string, list []field) error {
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	entries, err := parseYAML(path, content)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !slices.ContainsFunc(list, func(f field) bool { return f.key == e.key }) {
			errs = append(errs, fmt.Errorf("%s: %s is not a key%s", e.source, e.key, suggest(e.key, list, func(f field) string { return f.key })))
			continue
		}
		if before, twice := l.sources[e.key]; twice {
			errs = append(errs, fmt.Errorf("%s: %s is given twice, first at %s", e.source, e.key, before))
			continue
		}
		l.sources[e.key] = e.source
		if err := v.MergeConfigMap(nested(e.key, e.text)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.source, err))
		}
	}
	return errors.Join(errs...)
}

// nested makes {"database": {"dsn": text}} of "database.dsn".
func nested(key, text string) map[string]any {
	outer, inner, deep := strings.Cut(key, ".")
	if !deep {
		return map[string]any{key: text}
	}
	return map[string]any{outer: nested(inner, text)}
}

// unknownVariables refuses what begins like a variable of ours and is none: it
// is a setting that somebody believes to be in force.
func unknownVariables(environ []string, list []field) error {
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		known := func(f field) bool { return f.env() == name }
		if !strings.HasPrefix(name, EnvPrefix) || name == PathEnv || notOurs(name) || slices.ContainsFunc(list, known) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: is not a variable of stockd%s", name, suggest(name, list, field.env)))
	}
	return errors.Join(errs...)
}

// notOurs recognizes the variables that Kubernetes gives to every pod beside a
// service called stockd.
func notOurs(name string) bool {
	return regexp.MustCompile(`^STOCKD_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$`).MatchString(name)
}

// PathEnv names the variable that holds the path of the file.
const PathEnv = EnvPrefix + "CONFIG"

// readSecrets reads those secrets that stand in a file of their own.
func (l *Loaded) readSecrets() error {
	return errors.Join(
		l.readSecret("admin.token", &l.Admin.Token, l.Admin.TokenFile),
		l.readSecret("buyer.secret", &l.Buyer.Secret, l.Buyer.SecretFile),
		l.readSecret("database.password", &l.Database.Password, l.Database.PasswordFile),
		l.readSecret("redis.password", &l.Redis.Password, l.Redis.PasswordFile),
		l.readSecret("redis.sentinel_password", &l.Redis.SentinelPassword, l.Redis.SentinelPasswordFile),
		l.readSecret("redlock.password", &l.Redlock.Password, l.Redlock.PasswordFile),
		l.readSecret("zookeeper.auth", &l.ZooKeeper.Auth, l.ZooKeeper.AuthFile),
		l.readSecret("etcd.password", &l.Etcd.Password, l.Etcd.PasswordFile),
	)
}

func (l *Loaded) readSecret(key string, secret *Secret, path string) error {
	if path == "" {
		return nil
	}
	if *secret != "" {
		return l.wrong(key, "and %s_file are both set (%s)", key, l.Source(key+"_file"))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return l.wrong(key+"_file", "cannot be read: %w", err)
	}
	*secret = Secret(strings.TrimRight(string(content), "\r\n"))
	if *secret == "" {
		return l.wrong(key+"_file", "names an empty file")
	}
	l.sources[key] = path
	return nil
}

// suggest names the known word that is nearest to a wrong one, if any is near.
func suggest(word string, list []field, name func(field) string) string {
	best, distance := "", 4
	for _, f := range list {
		if d := levenshtein.ComputeDistance(word, name(f)); d < distance {
			best, distance = name(f), d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// EnvPrefix begins the name of every variable.
const EnvPrefix = "STOCKD_"

// field is one key of the configuration.
type field struct {
	key   string // such as database.max_open
	doc   string
	def   string
	tag   reflect.StructTag
	value reflect.Value
	// byRule: the documentation of another key describes this one as well.
	byRule bool
}

// env is the variable of the field: STOCKD_DATABASE_MAX_OPEN.
func (f field) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

func (f field) flag() string { return FlagOf(f.key) }

// FlagOf is the name of the flag of a key, without its dashes: database-max-open of
// database.max_open.
func FlagOf(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// section is a group of fields and of groups; the top has an empty key.
type section struct {
	key, doc string // a full key, such as database.tls
	like     string // the section that documents the same keys; empty: this one does
	parts    []part
}

// part is a field, or a section within one.
type part struct {
	field *field
	group *section
}

// sections lists the sections of c in the order of declaration.
func sections(c *Config) section { return sectionOf(section{}, reflect.ValueOf(c).Elem()) }

func sectionOf(s section, v reflect.Value) section {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := strings.TrimPrefix(s.key+"."+tag.Get("key"), ".")
		value := v.Field(i)
		secret, isSecret := reflect.TypeAssert[*Secret](value.Addr())
		if value.Kind() == reflect.Struct && !isSecret {
			group := sectionOf(section{key: name, doc: tag.Get("doc"), like: tag.Get("like")}, value)
			s.parts = append(s.parts, part{group: &group})
			continue
		}
		f := field{key: name, doc: tag.Get("doc"), def: tag.Get("default"), tag: tag, value: value, byRule: s.like != ""}
		s.parts = append(s.parts, part{field: &f})
		if isSecret {
			file := &field{key: f.key + "_file", doc: "file that holds " + f.key, byRule: true, value: reflect.ValueOf(&secret.File).Elem()}
			s.parts = append(s.parts, part{field: file})
		}
	}
	return s
}

func fields(c *Config) []field { return sections(c).fields() }

// Keys are all keys, also those that follow from a rule.
func Keys() []string {
	list := fields(new(Config))
	keys := make([]string, len(list))
	for i, f := range list {
		keys[i] = f.key
	}
	return keys
}

func (s section) fields() []field {
	var list []field
	for _, p := range s.parts {
		if p.field != nil {
			list = append(list, *p.field)
		} else {
			list = append(list, p.group.fields()...)
		}
	}
	return list
}

func (f field) within(section string) bool { return strings.HasPrefix(f.key, section+".") }

// secret is the value of a field that is one, or nil.
func (f field) secret() *Secret {
	secret, _ := reflect.TypeAssert[*Secret](f.value.Addr())
	return secret
}

// set reads text into the field; the error says what is allowed.
func (f field) set(text string) error {
	if !utf8.ValidString(text) && f.secret() == nil { // files, logs and metrics show it; they never show a secret
		return errors.New("must be text in UTF-8")
	}
	switch target := f.value.Addr().Interface().(type) {
	case *string:
		*target = text
	case *Secret:
		target.value = oneLine(text)
	case *[]string:
		*target = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	case *int:
		return parse(target, text, "a whole number", strconv.Atoi)
	case *float64:
		return parse(target, text, "a number", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	case *bool:
		return parse(target, text, "true or false", trueOrFalse)
	case *time.Duration:
		return parse(target, text, "a duration such as 5s or 250ms", time.ParseDuration)
	default:
		panic(fmt.Sprintf("config: no way to set a %s", f.value.Type()))
	}
	return nil
}

func parse[T any](target *T, text, allowed string, read func(string) (T, error)) error {
	value, err := read(text)
	if err != nil {
		return fmt.Errorf("must be %s, not %s", allowed, quoted(text))
	}
	*target = value
	return nil
}

// quoted shows a value in an error, unless it may be a login that was set in the wrong place.
func quoted(text string) string {
	if strings.ContainsAny(text, "@:;=?") {
		return "what is set, which is not shown: it may hold a password"
	}
	return strconv.Quote(text)
}

// trueOrFalse takes neither 1 nor T.
func trueOrFalse(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, strconv.ErrSyntax
	}
	return text == "true", nil
}

// check compares the value with the tags oneof, min, max and off of its field.
func (f field) check() error {
	text, least, most := f.text(), f.tag.Get("min"), f.tag.Get("max")
	if allowed := strings.Fields(f.tag.Get("oneof")); len(allowed) > 0 {
		for _, value := range f.values() {
			if !slices.Contains(allowed, value) {
				return fmt.Errorf("must be %s, not %s", strings.Join(allowed, " or "), quoted(value))
			}
		}
		return nil
	}
	if least == "" || text == f.tag.Get("off") || number(text) >= number(least) && (most == "" || number(text) <= number(most)) {
		return nil // NaN is neither
	}
	return fmt.Errorf("must be %s, not %s", f.bounds(), text)
}

func (f field) bounds() string {
	allowed, least, most, off := "", f.tag.Get("min"), f.tag.Get("max"), f.tag.Get("off")
	if off != "" {
		allowed = off + ", or "
	}
	if most == "" {
		return allowed + "at least " + least
	}
	return allowed + least + " to " + most
}

// description is what the field means, and its bounds.
func (f field) description() string {
	if f.tag.Get("min") == "" {
		return f.doc
	}
	return f.doc + "; " + f.bounds()
}

// number is the value of a number, or of a duration in seconds.
func number(text string) float64 {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds()
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil { // impossible: tags and typed values
		panic(err)
	}
	return n
}

// values are the parts of a list, or the only value.
func (f field) values() []string {
	if list, ok := reflect.TypeAssert[[]string](f.value); ok {
		return list
	}
	return []string{f.text()}
}

// text is the value as it may be shown: secrets are masked.
func (f field) text() string {
	switch v := f.value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// Secret is a value that is never printed. Its key is joined by one for a file that holds it
// instead: database.password by database.password_file.
type Secret struct {
	// File is the path of that file; empty: there is none.
	File  string
	value string
}

// NewSecret holds a value.
func NewSecret(value string) Secret { return Secret{value: value} }

// shown is printed in place of a secret.
const shown = "[not shown]"

// oneLine is a secret without the end of its line, with which a file and a Secret of Kubernetes often hold it.
func oneLine(text string) string { return strings.TrimRight(text, "\r\n") }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value }

// String is what is shown in place of the value.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return shown
}

// Format hides the value from the verbs that do not call String, such as %#v and %d.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) } //nolint:errcheck // there is no other place for it

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secrets are all secrets, by their keys.
func (c Config) Secrets() map[string]Secret {
	all := make(map[string]Secret)
	for _, f := range fields(&c) {
		if secret := f.secret(); secret != nil {
			all[f.key] = *secret
		}
	}
	return all
}

package config

import (
	"errors"
	"fmt"
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
}

// env is the variable of the field: STOCKD_DATABASE_MAX_OPEN.
func (f field) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

// flag is the flag of the field: database-max-open.
func (f field) flag() string { return FlagOf(f.key) }

// FlagOf is the name of the flag of a key, without its dashes: database-max-open of
// database.max_open.
func FlagOf(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// section is a group of fields and of groups; the top has an empty key.
type section struct {
	key, doc string // a full key, such as database.tls
	parts    []part
}

// part is a field, or a section within one.
type part struct {
	field *field
	group *section
}

// sections lists the sections of c in the order of declaration.
func sections(c *Config) section { return sectionOf("", "", reflect.ValueOf(c).Elem()) }

func sectionOf(key, doc string, v reflect.Value) section {
	s := section{key: key, doc: doc}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := strings.TrimPrefix(key+"."+tag.Get("key"), ".")
		if v.Field(i).Kind() == reflect.Struct {
			group := sectionOf(name, tag.Get("doc"), v.Field(i))
			s.parts = append(s.parts, part{group: &group})
			continue
		}
		s.parts = append(s.parts, part{field: &field{key: name, doc: tag.Get("doc"), def: tag.Get("default"), tag: tag, value: v.Field(i)}})
	}
	return s
}

// fields lists every key of c.
func fields(c *Config) []field { return sections(c).fields() }

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

// within reports whether the field belongs to a section.
func (f field) within(section string) bool { return strings.HasPrefix(f.key, section+".") }

// set reads text into the field; the error says what is allowed.
func (f field) set(text string) error {
	if !f.canBeShown(text) {
		return errors.New("must be text in UTF-8")
	}
	switch target := f.value.Addr().Interface().(type) {
	case *string:
		*target = text
	case *Secret:
		*target = Secret(text)
	case *[]string:
		*target = splitList(text)
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("must be a whole number, not %q", text)
		}
		*target = n
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("must be a number, not %q", text)
		}
		*target = n
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("must be true or false, not %q", text)
		}
		*target = text == "true"
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("must be a duration such as 5s or 250ms, not %q", text)
		}
		*target = d
	default:
		panic(fmt.Sprintf("config: no way to set a %s", f.value.Type()))
	}
	return nil
}

// check compares the value with the tags oneof, min and max of its field.
func (f field) check() error {
	text, least, most := f.text(), f.tag.Get("min"), f.tag.Get("max")
	allowed := strings.Fields(f.tag.Get("oneof"))
	switch {
	case len(allowed) > 0 && !slices.Contains(allowed, text):
		return fmt.Errorf("must be %s, not %q", strings.Join(allowed, " or "), text)
	case least == "" || number(text) >= number(least) && (most == "" || number(text) <= number(most)):
		return nil // NaN is neither
	case most == "":
		return fmt.Errorf("must be at least %s, not %s", least, text)
	default:
		return fmt.Errorf("must be %s to %s, not %s", least, most, text)
	}
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

// canBeShown reports whether files, logs and metrics can hold a text; secrets are in none of
// them.
func (f field) canBeShown(text string) bool {
	return utf8.ValidString(text) || f.value.Type() == reflect.TypeFor[Secret]()
}

// splitList splits at commas and white space.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
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

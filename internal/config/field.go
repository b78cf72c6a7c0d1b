package config

import (
	"errors"
	"fmt"
	"reflect"
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

// section is a group of fields and of groups, or, with an empty key, the top.
type section struct {
	key, doc string // the key is whole, such as database.tls
	parts    []part
}

// part is a field, or a section within one.
type part struct {
	field *field
	group *section
}

// sections is what c has, in the order of its declaration.
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
		s.parts = append(s.parts, part{field: &field{key: name, doc: tag.Get("doc"), def: tag.Get("default"), value: v.Field(i)}})
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

// within tells whether the field is one of a section.
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

// canBeShown tells whether a file, a log and a metric can hold a text; a secret is in
// none of them.
func (f field) canBeShown(text string) bool {
	return utf8.ValidString(text) || f.value.Type() == reflect.TypeFor[Secret]()
}

// splitList reads a list: commas between its parts, and blanks as you like.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// text is the field's value as it may be shown.
func (f field) text() string {
	if list, is := reflect.TypeAssert[[]string](f.value); is {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(f.value.Interface())
}

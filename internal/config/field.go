package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
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
func (f field) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(f.key)
}

// section is a group of fields, or, with an empty key, the top.
type section struct {
	key, doc string
	fields   []field
}

// sections lists what c has, in the order of its declaration.
func sections(c *Config) []section {
	list := []section{{}}
	top := reflect.ValueOf(c).Elem()
	for i := range top.NumField() {
		tag := top.Type().Field(i).Tag
		if top.Field(i).Kind() != reflect.Struct {
			list[0].fields = append(list[0].fields, fieldOf("", tag, top.Field(i)))
			continue
		}
		group := section{key: tag.Get("key"), doc: tag.Get("doc")}
		for j := range top.Field(i).NumField() {
			inner := top.Field(i).Type().Field(j).Tag
			group.fields = append(group.fields, fieldOf(group.key+".", inner, top.Field(i).Field(j)))
		}
		list = append(list, group)
	}
	return list
}

func fieldOf(prefix string, tag reflect.StructTag, v reflect.Value) field {
	return field{key: prefix + tag.Get("key"), doc: tag.Get("doc"), def: tag.Get("default"), value: v}
}

// fields lists every key of c.
func fields(c *Config) []field {
	var list []field
	for _, s := range sections(c) {
		list = append(list, s.fields...)
	}
	return list
}

// set reads text into the field; the error says what is allowed.
func (f field) set(text string) error {
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

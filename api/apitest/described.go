package apitest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Described is one answer that an operation may give.
type Described struct {
	Operation string
	Status    int
	// Kind is that of a problem, and empty for what is none.
	Kind string
}

// Answers lists every answer that is described of an operation.
func (o Operation) Answers() []Described {
	var list []Described
	for code, response := range o.spec.Responses.Map() {
		status, err := strconv.Atoi(code)
		if err != nil { // a range, or default: it describes nothing
			continue
		}
		for _, kind := range kindsOf(response) {
			list = append(list, Described{o.String(), status, kind})
		}
	}
	slices.SortFunc(list, func(a, b Described) int {
		return strings.Compare(strconv.Itoa(a.Status)+a.Kind, strconv.Itoa(b.Status)+b.Kind)
	})
	return list
}

// kindsOf lists the kinds of the problems that a response may be; what is no
// problem is one empty kind.
func kindsOf(response *openapi3.ResponseRef) []string {
	content := response.Value.Content[problemJSON]
	if content == nil {
		return []string{""}
	}
	alternatives := content.Schema.Value.OneOf
	if len(alternatives) == 0 {
		alternatives = openapi3.SchemaRefs{content.Schema}
	}
	var kinds []string
	for _, one := range alternatives {
		kind, _ := kindOf(one)
		kinds = append(kinds, kind)
	}
	return kinds
}

// kindOf is the kind and the status that the schema of a problem demands.
func kindOf(schema *openapi3.SchemaRef) (kind string, status int) {
	constant := func(name string) any {
		if property := schema.Value.Properties[name]; property != nil {
			return property.Value.Const
		}
		return nil
	}
	name, _ := constant("type").(string)
	number, _ := constant("status").(float64)
	return strings.TrimPrefix(name, kindPrefix), int(number)
}

// Problems is the status of every kind of problem that some response is described
// to be.
func (c *Contract) Problems() map[string]int {
	problems := make(map[string]int)
	note := func(response *openapi3.ResponseRef) {
		content := response.Value.Content[problemJSON]
		if content == nil {
			return
		}
		for _, one := range append(openapi3.SchemaRefs{content.Schema}, content.Schema.Value.OneOf...) {
			if kind, status := kindOf(one); kind != "" {
				problems[kind] = status
			}
		}
	}
	for _, response := range c.doc.Components.Responses {
		note(response)
	}
	for _, o := range c.operations {
		for _, response := range o.spec.Responses.Map() {
			note(response)
		}
	}
	return problems
}

// Fields lists the fields of a schema among the components.
func (c *Contract) Fields(schema string) []string {
	found := c.doc.Components.Schemas[schema]
	if found == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(found.Value.Properties))
}

// Fields lists the fields that a request may have, in its query or in a body of any type.
func (o Operation) Fields() []string {
	fields := make(map[string]bool)
	for _, p := range o.spec.Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			fields[p.Value.Name] = true
		}
	}
	if o.spec.RequestBody != nil {
		for _, content := range o.spec.RequestBody.Value.Content {
			for name := range content.Schema.Value.Properties {
				fields[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

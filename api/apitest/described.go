package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Described is one answer that an operation may give.
type Described struct {
	Status int
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
			list = append(list, Described{status, kind})
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

// Example is a request of the description, and the status of its answer.
type Example struct {
	// Name is that of the answer's example, and of those of the request.
	Name      string
	Operation Operation
	// Path has the query with it.
	Path, ContentType, Body string
	// Header has what the operation describes of it.
	Header http.Header
	Status int
}

// Examples lists every example of an operation: one for each body that its request
// may have.
func (o Operation) Examples() ([]Example, error) {
	var list []Example
	for _, code := range slices.Sorted(maps.Keys(o.spec.Responses.Map())) {
		status, err := strconv.Atoi(code)
		if err != nil {
			return nil, fmt.Errorf("%s: %s is no status", o, code)
		}
		for _, content := range o.spec.Responses.Map()[code].Value.Content {
			for _, name := range slices.Sorted(maps.Keys(content.Examples)) {
				examples, err := o.example(name, status)
				if err != nil {
					return nil, fmt.Errorf("%s, example %q: %w", o, name, err)
				}
				list = append(list, examples...)
			}
		}
	}
	return list, nil
}

// example makes the requests of one name.
func (o Operation) example(name string, status int) ([]Example, error) {
	e := Example{Name: name, Operation: o, Path: o.Path, Header: make(http.Header), Status: status}
	query := make(url.Values)
	for _, parameter := range o.spec.Parameters {
		value := parameter.Value.Example
		if own := parameter.Value.Examples[name]; own != nil {
			value = own.Value.Value
		}
		switch {
		case value == nil:
		case parameter.Value.In == openapi3.ParameterInPath:
			e.Path = strings.ReplaceAll(e.Path, "{"+parameter.Value.Name+"}", url.PathEscape(text(value)))
		case parameter.Value.In == openapi3.ParameterInQuery:
			query.Set(parameter.Value.Name, text(value))
		case parameter.Value.In == openapi3.ParameterInHeader:
			e.Header.Set(parameter.Value.Name, text(value))
		default:
			return nil, fmt.Errorf("an example of a parameter in the %s is not sent", parameter.Value.In)
		}
	}
	if len(query) > 0 {
		e.Path += "?" + query.Encode()
	}
	if o.spec.RequestBody == nil {
		return []Example{e}, nil
	}
	return e.withBodies(o.spec.RequestBody.Value.Content)
}

// withBodies is the example with each body of its name, or without one where there
// is none.
func (e Example) withBodies(content openapi3.Content) ([]Example, error) {
	var list []Example
	for _, media := range slices.Sorted(maps.Keys(content)) {
		own := content[media].Examples[e.Name]
		if own == nil {
			continue
		}
		with := e
		with.ContentType = media
		switch fields, _ := own.Value.Value.(map[string]any); media {
		case "application/json":
			body, err := json.Marshal(fields)
			if err != nil {
				return nil, err
			}
			with.Body = string(body)
		case "application/x-www-form-urlencoded":
			form := make(url.Values)
			for name, value := range fields {
				form.Set(name, text(value))
			}
			with.Body = form.Encode()
		default:
			return nil, fmt.Errorf("a body of %s is not sent", media)
		}
		list = append(list, with)
	}
	if len(list) == 0 {
		list = append(list, e)
	}
	return list, nil
}

// Sample is a valid request of an operation: the first example that is answered without a problem.
func (o Operation) Sample() (Example, error) {
	examples, err := o.Examples()
	if err != nil {
		return Example{}, err
	}
	for _, e := range examples {
		if e.Status < http.StatusBadRequest {
			return e, nil
		}
	}
	return Example{Operation: o, Path: o.Path}, nil // its answer has no body, and so no example
}

// text is a plain value as a query and a form have it.
func text(value any) string {
	if n, ok := value.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

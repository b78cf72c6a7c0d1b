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
	return o.bare(), nil
}

// bare is a request without anything, such as that of an operation whose answer has
// no body and so no example.
func (o Operation) bare() Example { return Example{Operation: o, Path: o.Path} }

// text is a plain value as a query and a form have it.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	if n, ok := value.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// Package apitest compares answers of stockd with the API description.
package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stockd/stockd/api"
)

// Contract validates answers. It may be used from any number of goroutines.
type Contract struct {
	doc        *openapi3.T
	operations []Operation
}

// Operation is one method of one path.
type Operation struct {
	Method, Path string
	// Listeners are "public API", "admin API", or both.
	Listeners []string

	spec    *openapi3.Operation
	matches *regexp.Regexp
}

// Load reads the description and lints it as OpenAPI 3.1, its examples included.
func Load() (*Contract, error) { return Read(api.Description) }

// Read does so for another description.
func Read(content []byte) (*Contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(content)
	if err != nil {
		return nil, fmt.Errorf("read the description: %w", err)
	}
	if !doc.IsOpenAPI31OrLater() {
		return nil, fmt.Errorf("the description is OpenAPI %s, want 3.1", doc.OpenAPI)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("lint the description: %w", err)
	}
	c := &Contract{doc: doc}
	for path, item := range doc.Paths.Map() {
		for method, spec := range item.Operations() {
			c.operations = append(c.operations, newOperation(method, path, spec))
		}
	}
	slices.SortFunc(c.operations, func(a, b Operation) int { return strings.Compare(a.String(), b.String()) })
	return c, nil
}

func newOperation(method, path string, spec *openapi3.Operation) Operation {
	pattern := regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]*`)
	o := Operation{Method: method, Path: path, spec: spec, matches: regexp.MustCompile("^" + pattern + "$")}
	if spec.Servers != nil {
		for _, server := range *spec.Servers {
			o.Listeners = append(o.Listeners, server.Description)
		}
	}
	return o
}

// String names an operation, such as "GET /goods/{id}".
func (o Operation) String() string { return o.Method + " " + o.Path }

// Operations lists those that are described.
func (c *Contract) Operations() []Operation { return c.operations }

// find is the operation that a request is for.
func (c *Contract) find(method, path string) (o Operation, found bool) {
	i := slices.IndexFunc(c.operations, func(o Operation) bool { return o.Method == method && o.matches.MatchString(path) })
	if i < 0 {
		return Operation{}, false
	}
	return c.operations[i], true
}

// Answer is an answer of stockd.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Kind is the last part of the problem's type, and empty where the answer is none.
func (a Answer) Kind() string {
	var problem struct {
		Type string `json:"type"`
	}
	if !strings.HasPrefix(a.Header.Get("Content-Type"), problemJSON) || json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, kindPrefix)
}

const (
	problemJSON = "application/problem+json"
	kindPrefix  = "urn:stockd:problem:"
)

// Judge returns how an answer differs from the description of its request: status, headers, kind,
// and every field of the body.
func (c *Contract) Judge(r *http.Request, a Answer) error {
	operation, found := c.find(r.Method, r.URL.Path)
	switch kind := a.Kind(); {
	case found && slices.Contains(operation.Answers(), Described{a.Status, kind}):
	case kind == "not-found": // the operation is on the other listener, or off
		operation = c.nowhere(a.Status, "NotFound")
	case kind == "method-not-allowed":
		operation = c.nowhere(a.Status, "MethodNotAllowed")
	case !found:
		return fmt.Errorf("%s %s is not described, and is answered with %d %s", r.Method, r.URL.Path, a.Status, a.Body)
	}
	if err := judge(operation, a); err != nil {
		return fmt.Errorf("%s is answered with %d %s\nwhich is not as described: %w", operation, a.Status, a.Body, err)
	}
	return nil
}

// nowhere is an operation with one answer, for requests without an operation.
func (c *Contract) nowhere(status int, response string) Operation {
	responses := openapi3.NewResponsesWithCapacity(1)
	responses.Set(strconv.Itoa(status), c.doc.Components.Responses[response])
	return Operation{Method: "any", Path: "anywhere", spec: &openapi3.Operation{Responses: responses}}
}

// judge holds an answer to what is described of an operation.
func judge(o Operation, a Answer) error {
	response := o.spec.Responses.Status(a.Status)
	if response == nil {
		return errors.New("no such status is described")
	}
	for name, header := range response.Value.Headers {
		if err := judgeHeader(header.Value, a.Header.Values(name)); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return judgeBody(response.Value.Content, a)
}

func judgeHeader(header *openapi3.Header, values []string) error {
	if len(values) == 0 {
		if header.Required {
			return errors.New("is missing")
		}
		return nil
	}
	schema := header.Schema.Value
	if schema.Type.Is("integer") || schema.Type.Is("boolean") {
		return visit(schema, []byte(values[0]))
	}
	return schema.VisitJSON(values[0], openapi3.EnableJSONSchema2020())
}

func judgeBody(content openapi3.Content, a Answer) error {
	if len(content) == 0 {
		if len(a.Body) > 0 {
			return errors.New("no body is described")
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	described := content[media]
	switch {
	case described == nil:
		return fmt.Errorf("no body of %s is described", media)
	case described.Schema == nil:
		return nil
	}
	return visit(described.Schema.Value, a.Body)
}

// visit holds a value in JSON to a schema.
func visit(schema *openapi3.Schema, content []byte) error {
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		return err
	}
	err := schema.VisitJSON(value, openapi3.EnableJSONSchema2020())
	if err == nil {
		return nil
	}
	for _, one := range schema.AnyOf { // the library does not say what is wrong with each
		err = errors.Join(err, one.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()))
	}
	return err
}

// Package apitest compares answers of stockd with the API description.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	schemas    *schemas
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
	schemas, err := newSchemas(doc)
	if err != nil {
		return nil, err
	}
	c := &Contract{doc: doc, schemas: schemas}
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

// Find is the operation that a request is for.
func (c *Contract) Find(method, path string) (o Operation, found bool) {
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
	operation, found := c.Find(r.Method, r.URL.Path)
	switch kind := a.Kind(); {
	case found && slices.Contains(operation.Answers(), Described{operation.String(), a.Status, kind}):
	case kind == "not-found": // the operation is on the other listener, or off
		operation = c.nowhere(a.Status, "NotFound")
	case kind == "method-not-allowed":
		operation = c.nowhere(a.Status, "MethodNotAllowed")
	case !found:
		return fmt.Errorf("%s %s is not described, and is answered with %d %s", r.Method, r.URL.Path, a.Status, a.Body)
	}
	if err := c.judge(operation, a); err != nil {
		return fmt.Errorf("%s is answered with %d %s\nwhich is not as described: %w", operation, a.Status, a.Body, err)
	}
	return nil
}

// nowhere is an operation with one answer, for requests without an operation.
func (c *Contract) nowhere(status int, response string) Operation {
	responses := openapi3.NewResponsesWithCapacity(1)
	responses.Set(strconv.Itoa(status), &openapi3.ResponseRef{
		Ref: "#/components/responses/" + response, Value: c.doc.Components.Responses[response].Value,
	})
	return Operation{Method: "any", Path: "anywhere", spec: &openapi3.Operation{Responses: responses}}
}

// reporter gets the errors of answers; a *testing.T is one.
type reporter interface {
	Errorf(format string, args ...any)
}

// Transport judges every answer.
func (c *Contract) Transport(to reporter) http.RoundTripper { return transport{c, to} }

type transport struct {
	contract *Contract
	to       reporter
}

// RoundTrip sends the request and judges the answer.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if err := t.contract.Judge(r, Answer{Status: response.StatusCode, Header: response.Header, Body: body}); err != nil {
		t.to.Errorf("%v", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

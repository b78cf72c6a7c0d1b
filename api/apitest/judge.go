package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// judge holds an answer to what is described of an operation.
func (c *Contract) judge(o Operation, a Answer) error {
	response := o.spec.Responses.Status(a.Status)
	if response == nil {
		return errors.New("no such status is described")
	}
	at := response.Ref
	if at == "" {
		at = "#/paths/" + escape(o.Path) + "/" + strings.ToLower(o.Method) + "/responses/" + strconv.Itoa(a.Status)
	}
	for name, header := range response.Value.Headers {
		if err := c.judgeHeader(at, name, header, a.Header); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return c.judgeBody(at, response.Value.Content, a)
}

func (c *Contract) judgeHeader(at, name string, header *openapi3.HeaderRef, given http.Header) error {
	values := given.Values(name)
	if len(values) == 0 {
		if header.Value.Required {
			return errors.New("is missing")
		}
		return nil
	}
	if header.Ref == "" {
		at += "/headers/" + escape(name)
	} else {
		at = header.Ref
	}
	var value any = values[0]
	if kinds := header.Value.Schema.Value.Type; kinds.Is("integer") || kinds.Is("boolean") {
		read, err := jsonschema.UnmarshalJSON(strings.NewReader(values[0]))
		if err != nil {
			return err
		}
		value = read
	}
	return c.schemas.validate(at+"/schema", value)
}

func (c *Contract) judgeBody(at string, content openapi3.Content, a Answer) error {
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
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.Body))
	if err != nil {
		return err
	}
	return c.schemas.validate(at+"/content/"+escape(media)+"/schema", body)
}

// schemas are those of the description, each compiled when it is first needed.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

// document is what the compiler knows the description as.
const document = "urn:stockd:openapi"

func newSchemas(doc *openapi3.T) (*schemas, error) {
	text, err := doc.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("make JSON of the description: %w", err)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("make JSON of the description: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource(document, content); err != nil {
		return nil, fmt.Errorf("read the schemas of the description: %w", err)
	}
	return &schemas{compiler: compiler}, nil
}

// validate holds a value to the schema at a place of the description.
func (s *schemas) validate(at string, value any) error {
	s.mu.Lock()
	schema, err := s.compiler.Compile(document + at) // once a place: the compiler remembers
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// escape makes a name a part of a JSON pointer in a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

package main

import (
	"go.yaml.in/yaml/v3"
)

// description is the HTTP interface.
const description = "api/openapi.yaml"

// apiSources are the obligations of the HTTP interface: the sentences that describe it as
// a whole, its operations, their answers, and the components. The first sentence of an
// operation's answer only names that answer, and is no obligation.
func apiSources(path string, content []byte) ([]*source, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	root := document.Content[0]
	found := []*source{{name: "api", path: path, sentences: split(text(root, "info"))}}
	for _, operations := range entries(child(root, "paths")) {
		for _, operation := range entries(operations.value) {
			name := value(child(operation.value, "operationId"))
			if name == "" {
				continue
			}
			s := &source{name: "api." + name, path: path, sentences: split(text(operation.value))}
			s.sentences = append(s.sentences, described(child(operation.value, "responses"), 1)...)
			if len(s.sentences) > 0 {
				found = append(found, s)
			}
		}
	}
	for _, kind := range []string{"responses", "headers", "schemas"} {
		found = append(found, &source{name: "api." + kind, path: path, sentences: described(child(root, "components", kind), 0)})
	}
	return found, nil
}

// described are the sentences about what stands below a node, each with its name, without
// so many that come first.
func described(of *yaml.Node, skip int) (found []*obligation) {
	for _, one := range entries(of) {
		all := split(text(one.value))
		for _, o := range all[min(skip, len(all)):] {
			found = append(found, &obligation{text: one.name + ": " + o.text})
		}
	}
	return found
}

type entry struct {
	name  string
	value *yaml.Node
}

// entries are the pairs of a mapping; none of nil.
func entries(of *yaml.Node) (pairs []entry) {
	if of == nil || of.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(of.Content); i += 2 {
		pairs = append(pairs, entry{of.Content[i].Value, of.Content[i+1]})
	}
	return pairs
}

// child follows names down; nil where one of them is not there.
func child(of *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		var next *yaml.Node
		for _, e := range entries(of) {
			if e.name == name {
				next = e.value
			}
		}
		of = next
	}
	return of
}

func value(of *yaml.Node) string {
	if of == nil {
		return ""
	}
	return of.Value
}

// text is the description of what stands there.
func text(of *yaml.Node, names ...string) string {
	return value(child(of, append(names, "description")...))
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry is one scalar of a YAML file.
type entry struct {
	key    string // such as database.max_open
	text   string
	source string // file and line
}

// parseYAML lists the scalars of a file with their lines, which viper does not keep.
func parseYAML(path string, content []byte) ([]entry, error) {
	var document, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(content))
	err := documents.Decode(&document)
	if errors.Is(err, io.EOF) { // an empty file
		return nil, nil
	}
	if err == nil {
		err = documents.Decode(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return entriesOf(path, "", document.Content[0])
	case err == nil:
		return nil, fmt.Errorf("%s:%d: must be one document; another one begins with ---", path, second.Line)
	case strings.HasPrefix(err.Error(), "yaml: unknown anchor"): // it quotes the value, which may be a password
		return nil, fmt.Errorf("%s: a value that begins with * must be in quotes", path)
	default:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
}

func entriesOf(path, prefix string, node *yaml.Node) ([]entry, error) {
	if node.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: expected keys and values", path, node.Line)
	}
	var list []entry
	var errs []error
	for pair := range slices.Chunk(node.Content, 2) {
		name, value := pair[0], pair[1]
		key := prefix + name.Value
		source := fmt.Sprintf("%s:%d", path, name.Line)
		switch {
		case value.Kind == yaml.MappingNode:
			inner, err := entriesOf(path, key+".", value)
			list, errs = append(list, inner...), append(errs, err)
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			// A key without a value keeps its default.
		case value.Kind == yaml.ScalarNode:
			list = append(list, entry{key: key, text: value.Value, source: source})
		default:
			errs = append(errs, fmt.Errorf("%s: %s must be one value, not a list or an alias; write several addresses as one value, separated by commas", source, key))
		}
	}
	return list, errors.Join(errs...)
}

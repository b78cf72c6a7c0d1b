// Package api describes the HTTP of stockd.
package api

import _ "embed" // the description is embedded

// Description is openapi.yaml: OpenAPI 3.1, for both listeners. Tests hold it to the
// running service, in both directions.
//
//go:embed openapi.yaml
var Description []byte

// Package migrations holds the schema of stockd as goose migrations, one
// folder a dialect.
package migrations

import "embed"

// Files holds mysql/*.sql and sqlite/*.sql.
//
//go:embed mysql/*.sql sqlite/*.sql
var Files embed.FS

// Package stockd has the sources of the strategies and locks, which the lab shows beside their effects. stockd itself
// does not import it.
package stockd

import "embed"

// Sources are files of this tree, by their paths in it.
//
//go:embed internal/lock/*/*.go internal/lock/*/lua internal/repo/*.go
//go:embed internal/service/strategy/*.go internal/service/*/lua migrations/mysql
var Sources embed.FS

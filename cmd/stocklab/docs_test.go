package main

import (
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// Every command of stocklab that a document shows exists, with these flags.
func TestDocumentedCommandsExist(t *testing.T) { cmdtest.CheckDocumentedCommands(t, root()) }

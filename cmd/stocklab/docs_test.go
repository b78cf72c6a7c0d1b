package main

import (
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// Every command of stocklab that a document shows is one, with these flags.
func TestDocumentedCommandsExist(t *testing.T) { cmdtest.CheckCommands(t, root(), "demo") }

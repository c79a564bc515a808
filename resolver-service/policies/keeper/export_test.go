package keeper

import "testing"

// For tests of the whole service, which this package can't import.
var (
	Shared  = &shared
	Has     = has
	Within  = within
	Prepare = prepare
)

// Fresh has the shared API server without policies.
func Fresh(t *testing.T) { newWorld(t) }

package system

import "github.com/isthmus-mesh/isthmus/tests/meshtest"

// What tests write most.
var export, selection = meshtest.Export, meshtest.Selection

package demo

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// The demo checks each of its steps. Where it was run once, its programs are there.
func TestTheDemo(t *testing.T) {
	programstest.Need(t, "daprd", "sentry", "placement", "isthmus")
	if err := Run(t.Context(), Options{Out: t.Output(), Once: true}); err != nil {
		t.Fatal(err)
	}
}

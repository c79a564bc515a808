// Package conformance_test runs the suite for resolvers that need no server, and for Isthmus, whose
// service it is told of.
package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/sqlite"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/components/daprd/conformance"
	"github.com/isthmus-mesh/isthmus/components/daprd/upstream/isthmus"
)

// patience is for machines that run other tests at the same time.
const patience = 20

var testLogger = logger.NewLogger("conformance")

func TestSQLite(t *testing.T) {
	conformance.Run(t, func() nameresolution.Resolver { return sqlite.NewResolver(testLogger) }, conformance.Setup{
		Start: func(t *testing.T) any {
			return map[string]any{"connectionString": filepath.Join(t.TempDir(), "names.db")}
		},
		Invalid:  map[string]any{"no connection string": map[string]any{}},
		Patience: patience,
	}, conformance.Ports, conformance.IPv6, conformance.Refuses, conformance.Prompt)
}

// TestIsthmus wants the address of a resolver service of cluster west, in plain text.
func TestIsthmus(t *testing.T) {
	service := os.Getenv("ISTHMUS_RESOLVER")
	if service == "" {
		t.Skip("ISTHMUS_RESOLVER names no resolver service")
	}
	conformance.Run(t, func() nameresolution.Resolver { return isthmus.NewResolver(testLogger) }, conformance.Setup{
		Start: func(*testing.T) any {
			return map[string]any{"resolver": service, "cluster": "west", "insecure": "true"}
		},
		Invalid:  map[string]any{"no cluster": map[string]any{"resolver": service, "insecure": "true"}},
		Patience: patience,
	}, conformance.Namespaces, conformance.Ports, conformance.IPv6, conformance.Refuses, conformance.Prompt)
}

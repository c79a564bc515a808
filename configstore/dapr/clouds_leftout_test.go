//go:build !(clouds || stablecomponents || allcomponents)

package dapr

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// TestComponentsLeftOut: the default build refuses a component that it has no client for.
// The error names the component, the build tag and the binary that has the client.
func TestComponentsLeftOut(t *testing.T) {
	const table = ", {name: connectionString, value: host=a}, {name: table, value: t}"
	for _, c := range [][2]string{
		{kindAzure, "{name: host, value: https://127.0.0.1:1}"},
		{kindKubernetes, "{name: configMapName, value: isthmus}"},
		{kindPostgres, "{name: useAWSIAM, value: true}" + table},
		{kindPostgres, "{name: useAzureAD, value: true}" + table},
		{kindRedis, "{name: useEntraID, value: true}, {name: redisHost, value: a}"},
	} {
		kind, settings := c[0], c[1]
		yaml := fmt.Sprintf("{apiVersion: dapr.io/v1alpha1, kind: Component, metadata: {name: mine}, spec: {type: %s, metadata: [%s]}}", kind, settings)
		file := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), yaml)
		_, err := Open(Config{Component: file}, configstore.Scope{}, slog.New(slog.DiscardHandler))
		for _, want := range []string{"component mine", "-tags clouds", "isthmus-full"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want it to say %q", kind, err, want)
			}
		}
	}
}

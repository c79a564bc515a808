package component

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

func TestTheStoresThatASidecarCanRead(t *testing.T) {
	for kind, want := range map[string]string{
		"zookeeper": "want one of embedded, file, consul",
		"consul":    `store.consul.adress: unknown field; did you mean "address"?`,
	} {
		s := newSidecar(t)
		s.component.Stores = []open.Kind{open.Of("consul", consul.Open)}
		err := s.start(t, orders, 50002, map[string]any{
			"cluster": "west", "store": map[string]any{kind: map[string]any{"adress": "http://127.0.0.1:8500"}}, "local": map[string]any{"component": "mdns"},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Init: %v, want %q", err, want)
		}
	}
}

package component

import (
	"strings"
	"testing"
)

func TestTheStoresThatASidecarCanRead(t *testing.T) {
	s := newSidecar(t)
	err := s.start(t, orders, 50002, map[string]any{
		"cluster": "west", "store": map[string]any{"zookeeper": map[string]any{}}, "local": map[string]any{"component": "mdns"},
	})
	if want := "want one of embedded, file, consul, etcd, kubernetes, dapr"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Init: %v, want %q", err, want)
	}
	s = newSidecar(t)
	err = s.start(t, orders, 50002, map[string]any{
		"cluster": "west", "store": map[string]any{"consul": map[string]any{"adress": "http://127.0.0.1:8500"}}, "local": map[string]any{"component": "mdns"},
	})
	if want := `store.consul.adress: unknown key; did you mean "address"?`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Init: %v, want %q", err, want)
	}
}

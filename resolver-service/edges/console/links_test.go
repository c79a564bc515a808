package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestManyClustersComeInPages(t *testing.T) {
	w := newWorld(t, 7)
	var all []catalog.Object
	for i := range 150 {
		all = append(all, &catalog.Cluster{Name: fmt.Sprintf("far-%03d", i), Gateways: []string{"127.0.0.1:1"}, StaleAfter: catalog.DefaultStaleAfter})
	}
	w.west.apply(all...)
	w.west.within("152 links", func() bool { return len(w.west.status().GetPeers()) == 152 })
	for path, want := range map[string]struct{ has, lacks string }{
		"/links":           {"far-000", "far-149"},
		"/links?row=100":   {"far-149", "far-000"},
		"/links?q=far-14":  {"far-149", "far-000"},
		"/links?q=nowhere": {"0 clusters", "far-000"},
	} {
		if text := w.page(path).Text(); !strings.Contains(text, want.has) || strings.Contains(text, want.lacks) {
			t.Errorf("%s: want %s and no %s: %s", path, want.has, want.lacks, text)
		}
	}
}

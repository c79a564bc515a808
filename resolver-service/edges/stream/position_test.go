package stream

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func FuzzPosition(f *testing.F) {
	some := position{app: catalog.App{Namespace: "shop", ID: "orders"}, address: netip.MustParseAddrPort("[fe80::1%eth0]:1"), source: netip.MustParseAddr("10.0.0.1"), number: 7}
	watcher := position{app: some.app}
	for _, seed := range []string{some.String(), watcher.String(), "- - 1", "1 2 3 4", "- - -1 a/b", "", "- - 1 a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePosition(text)
		if err != nil {
			return
		}
		again, err := parsePosition(p.String())
		if err != nil || again.compare(p) != 0 {
			t.Errorf("%q is read as %q (%v)", text, p, err)
		}
	})
}

package zone

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// TestWhoIsKnownOnABoundListener: whoever asks there is the app, and that alone makes nobody known.
func TestWhoIsKnownOnABoundListener(t *testing.T) {
	w := shop(t, forwarders)
	for _, c := range []struct {
		what, from string
		over       transport.Protocol
		want       transport.Standing
	}{
		{"an instance of the app", "10.0.0.9", transport.UDP, transport.Instance},
		{"an instance of another", "10.0.0.1", transport.UDP, transport.Instance},
		{"a listed forwarder", "10.53.0.1", transport.UDP, transport.Forwarder},
		{"a stranger", "10.9.9.9", transport.UDP, transport.Stranger},
		{"a stranger who has connected", "10.9.9.9", transport.TCP, transport.Proved},
	} {
		a := asking{as: "shop/checkout", from: c.from, name: "ledger.finance.isthmus.internal.", typ: "A", over: c.over}
		q := query(a, must(a.message().Pack()))
		if _, later := w.Answer(q, nil); later || q.Standing != c.want {
			t.Errorf("%s: standing %d, want %d", c.what, q.Standing, c.want)
		}
		if got := w.ask(a); len(got.Answer) != 2 {
			t.Errorf("%s is not answered as checkout: %v", c.what, got)
		}
	}
	w.apply(runs("shop/one", "10.7.0.1:1001"), runs("shop/two", "10.7.0.1:1002"))
	a := asking{as: "shop/checkout", from: "10.7.0.1", name: "isthmus.internal.", typ: "SOA"}
	q := query(a, must(a.message().Pack()))
	q.From = netip.MustParseAddrPort("[::ffff:10.7.0.1]:5353")
	if w.Answer(q, nil); q.Standing != transport.Instance {
		t.Error("who has the address of several apps' instances is not known")
	}
}

package show

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestManyClustersWithNothingToSayAreOneLine(t *testing.T) {
	d := &v1alpha1.Decision{Outcome: "ok"}
	status := &v1alpha1.StatusResponse{}
	for i := range 1000 {
		name := fmt.Sprintf("peer-%04d", i)
		r := &v1alpha1.RouteDecision{Cluster: name, Priority: 1, Weight: 1, Reason: "exports no shop/orders to this cluster", Peer: fmt.Sprintf("heard %d ms ago", i)}
		p := &v1alpha1.PeerStatus{Cluster: name, State: catalog.PeerResting, LastWordUnixMs: noon.UnixMilli()}
		switch i {
		case 7:
			r.Ready, r.Taken, r.Reason = 1, true, "1 ready"
			p.State = "connected"
		case 9:
			r.Reason = "stale for 12 s"
			p.State = "stale"
		}
		d.Routes, status.Peers = append(d.Routes, r), append(status.Peers, p)
	}
	for name, text := range map[string]func(*strings.Builder) error{
		"explain": func(b *strings.Builder) error { return Explain(b, "shop/checkout", "shop/orders", d) },
		"status":  func(b *strings.Builder) error { return Status(b, status, false, noon) },
	} {
		var b strings.Builder
		if err := text(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"peer-0007", "peer-0009", "998"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s does not say %q:\n%s", name, want, b.String())
			}
		}
		if lines := strings.Count(b.String(), "\n"); lines > 30 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
	if len(d.GetRoutes()) != 1000 {
		t.Errorf("%d routes are left for JSON", len(d.GetRoutes()))
	}
}

package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
)

func TestOutagesAreTold(t *testing.T) {
	ring := events.New()
	cfg := west
	cfg.Events = ring.Logger()
	top := running(t, cfg)
	moved := Change{Instances: []InstanceChange{{Source: "test", Delete: []InstanceKey{{app("ledger"), "1"}}, Put: []catalog.Instance{at("cart", "1", "10.0.0.3:1")}}}}
	for _, step := range []struct {
		what   string
		change Change
		want   string
	}{
		{"at the start", full(selects("checkout", calls("orders"), calls("ledger")), exports("stock", catalog.Allow{Cluster: "east"})), ""},
		{"the first instances", runs("orders", "1", "10.0.0.1:1"), ""},
		{"one more", runs("orders", "2", "10.0.0.2:1"), ""},
		{"one goes", stops("orders", "1"), ""},
		{"the last goes", stops("orders", "2"), "lost shop/orders"},
		{"it stays away", objects(selects("checkout", calls("orders"), calls("ledger"))), ""},
		{"one comes", runs("orders", "3", "10.0.0.1:1"), "again shop/orders"},
		{"the address of the last goes to another app", runs("ledger", "1", "10.0.0.3:1"), ""},
		{"and now it does", moved, "lost shop/ledger"},
		{"an exported app", runs("stock", "1", "10.0.0.4:1"), ""},
		{"goes", stops("stock", "1"), "lost shop/stock"},
		{"an app that nobody calls", runs("lonely", "1", "10.0.0.5:1"), ""},
		{"is missed by nobody", stops("lonely", "1"), ""},
		{"an app that calls alone", runs("checkout", "1", "10.0.0.6:1"), ""},
		{"is missed by nobody, either", stops("checkout", "1"), ""},
	} {
		since, _ := ring.Latest().Load()
		top.must(t, step.change)
		var got []string
		for _, e := range ring.After(since, time.Time{}) {
			what := "again "
			if strings.Contains(e.Message, "lost its last") {
				what = "lost "
			}
			got = append(got, what+e.Fields[0].Value)
		}
		if text := strings.Join(got, ", "); text != step.want {
			t.Errorf("%s: %q, want %q", step.what, text, step.want)
		}
	}
}

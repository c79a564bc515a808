package zone

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// explain answers a person who asks for TXT: what a lookup of the app ends with, and
// why. With a route, only that one is told of.
func (x *exchange) explain(entry *catalog.Entry, only *catalog.Route) {
	if only == nil {
		entry = x.withUnheard(entry)
	}
	d := entry.Explain()
	x.outcome = answered
	x.text("app", entry.App.String())
	if only == nil {
		x.text("outcome", d.Outcome.String())
		if d.Outcome == catalog.OK {
			x.text("cluster", d.Cluster)
			x.text("address", d.Address)
		}
		x.text("reason", d.Reason)
	} else {
		x.text("cluster", only.Cluster)
	}
	x.text("rule", d.Rule)
	x.text("revision", fmt.Sprint(x.view.Revision))
	x.text("caller", x.who.app.String())
	for i := range d.Routes {
		if r := &d.Routes[i]; only == nil || only == &entry.Routes[i] {
			x.text("route", fmt.Sprintf("%s priority %d weight %d ready %d: %s", r.Cluster, r.Priority, r.Weight, r.Ready, r.Reason))
			if text := x.explainUnnamed(entry.Plan, &entry.Routes[i]); text != "" {
				x.text("gateway", text)
			}
		}
	}
}

func (x *exchange) text(key, value string) {
	mark := x.response.Open(wire.Owner, wire.TypeTXT, x.zone.negative)
	x.response.Text(key + "=" + value)
	x.response.Close(wire.Answer, mark)
}

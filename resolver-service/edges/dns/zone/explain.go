package zone

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// explain answers a person who asks for TXT: what a lookup of the app ends with, and
// why. With a route, only that one is told of.
func (l *lookup) explain() {
	entry := l.entry
	if l.only == nil {
		entry = l.zone.withUnheard(entry)
	}
	d := entry.Explain()
	l.outcome = answered
	l.response.text("app", entry.App.String())
	if l.only == nil {
		l.response.text("outcome", d.Outcome.String())
		if d.Outcome == catalog.OK {
			l.response.text("cluster", d.Cluster)
			l.response.text("address", d.Address)
		}
		l.response.text("reason", d.Reason)
	} else {
		l.response.text("cluster", l.only.Cluster)
	}
	l.response.text("rule", d.Rule)
	l.response.text("revision", fmt.Sprint(l.view.Revision))
	l.response.text("caller", l.who.app.String())
	for i := range d.Routes {
		if r := &d.Routes[i]; l.only == nil || l.only == &entry.Routes[i] {
			l.response.text("route", fmt.Sprintf("%s priority %d weight %d ready %d: %s", r.Cluster, r.Priority, r.Weight, r.Ready, r.Reason))
			if text := l.explainUnnamed(entry.Plan, &entry.Routes[i]); text != "" {
				l.response.text("gateway", text)
			}
		}
	}
}

func (r *response) text(key, value string) {
	mark := r.Open(wire.Owner, wire.TypeTXT, r.zone.negative)
	r.Text(key + "=" + value)
	r.Close(wire.Answer, mark)
}

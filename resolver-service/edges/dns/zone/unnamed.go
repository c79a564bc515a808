package zone

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// The names of Dapr's services in Kubernetes are asked for by Dapr's resolver "kubernetes",
// which has daprd dial a bare address: a gateway is told no server name then, and the port
// is the one that the caller's own sidecar listens on. So these names, and no others, are
// answered by the gateways that lead to the app alone. Where a cluster has none for it,
// they are answered by its gateways for all apps, since Dapr's "nameformat" asks for the
// same names and does send them; and the answer says who gets through.

// unnamedCallers notes what becomes of callers that send no server name to the gateways
// that were answered. It is not inlined, so that others need not make room for it.
//
//go:noinline
func (l *lookup) unnamedCallers(n *name, route *catalog.Route, packed *addresses) {
	if l.outcome != answered {
		return // stale, which is worse
	}
	if !packed.own {
		l.outcome, l.why = byServerName, why{about: whyByServerName, text: route.Cluster, app: n.label(), trim: true}
		return
	}
	l.meant = packed.port
	if _, other := ownPort(l.view, l.who.app, packed.port); other {
		l.outcome, l.why = otherPort, why{about: whyOtherPort, text: route.Cluster, app: n.label(), trim: true}
	}
}

// manyAddresses is how many of a caller's own instances are looked at for their port.
const manyAddresses = 64

// ownPort tells on which port the caller's own instances listen, if none is on the one
// that is meant. Of a caller without instances that is not known.
func ownPort(view *catalog.View, caller catalog.App, meant uint16) (own uint16, other bool) {
	entry, ok := view.ByOwnName(caller)
	if !ok {
		return 0, false
	}
	for i := range entry.Routes {
		r := &entry.Routes[i]
		if !r.Local {
			continue
		}
		for _, instance := range r.Addresses[:min(len(r.Addresses), manyAddresses)] {
			if at, err := netip.ParseAddrPort(instance); err == nil {
				if own = at.Port(); own == meant {
					return own, false
				}
			}
		}
	}
	return own, own != 0
}

func (x extendedError) byServerName(b []byte) []byte {
	w := &x.why
	b = append(append(b, "the gateways of "...), w.text...)
	b = append(b, " lead by server name, which Dapr's resolver kubernetes does not send; list one for "...)
	return append(append(append(appendApp(b, x.app()), " alone in the Cluster object "...), w.text...), ", with its app and namespace"...)
}

func (x extendedError) otherPort(b []byte) []byte {
	w := &x.why
	own, _ := ownPort(x.view, x.who.app, x.meant)
	b = append(b, "the gateway of "...)
	b = appendApp(append(append(b, w.text...), " for "...), x.app())
	b = appendNumber(append(b, " is on port "...), uint(x.meant), 10)
	b = appendNumber(append(b, ", and Dapr's resolver kubernetes dials the one that the caller listens on, "...), uint(own), 10)
	return append(b, "; give both one port"...)
}

// explainUnnamed says, for a person, how callers that send no server name get to a route's
// app; empty where they need no gateway.
func (l *lookup) explainUnnamed(p *catalog.Plan, r *catalog.Route) string {
	if !l.unnamed || !r.Gateway || !reachable(r) {
		return ""
	}
	packed, because := l.addresses(p, r)
	switch {
	case packed.none():
		return because
	case !packed.own:
		return r.Cluster + " by server name alone, which Dapr's resolver kubernetes does not send; list a gateway for " + p.App.String() + " in the Cluster object"
	}
	var all []string
	packed.each(func(a netip.Addr) { all = append(all, netip.AddrPortFrom(a, packed.port).String()) })
	text := fmt.Sprintf("%s also without a server name, by %s", r.Cluster, strings.Join(all, ", "))
	if own, other := ownPort(l.view, l.who.app, packed.port); other {
		text += fmt.Sprintf("; the caller listens on port %d, and so dials that", own)
	}
	return text
}

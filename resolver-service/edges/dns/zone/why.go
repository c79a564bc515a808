package zone

import (
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// why is what the text of an extended error is made of, once somebody wants it. With more
// than four fields the compiler would pass it by memory.
type why struct {
	about about
	text  string
	app   uint8 // the label of the query's name that has the app-id; its namespace follows
	trim  bool  // that label ends with what Dapr appends
}

// about is what a why is about.
type about uint8

const (
	whyNothing      about = iota
	whyText               // text says it all
	whyNotSynced          // the store's full set is not in
	whyNotSettled         // what is missing may be there in a moment
	whyAsked              // another cluster is being asked for the app
	whyNoSuchName         // no name of the zone has this form
	whyBetween            // only what is below the name is there
	whyNotHeld            // the view does not hold the app
	whyRenamed            // it is the caller's name for another app
	whyNoRoute            // the view holds the app, and no route to the cluster that is named
	whyNoInstance         // the app has no such instance ready
	whyNoGateway          // no address is known of the gateways of the cluster in text
	whyUnknown            // it is not known who asks
	whyNotForwarded       // who asks may not have other names looked up
	whyLapsed             // the lease of the cluster in text has run out
	whyByServerName       // the gateways of the cluster in text take who sends a server name alone
	whyOtherPort          // the gateway of the cluster in text is on x.meant, and the caller on another
)

// extendedError says why a response is as it is (RFC 8914).
type extendedError struct{ *exchange }

// code is the extended error of the response; ok is false where there is none.
func (x extendedError) code() (code wire.ErrorCode, ok bool) {
	switch x.outcome {
	case outside:
		return wire.ErrorNotAuthoritative, true
	case servedStale:
		return wire.ErrorStaleAnswer, true
	case denied:
		return wire.ErrorBlocked, true
	case unknownCaller, notForwarded:
		return wire.ErrorProhibited, true
	case unavailable, unresolved:
		return wire.ErrorNoReachableAuthority, true
	case notReady:
		return wire.ErrorNotReady, true
	case notFound, stale, byServerName, otherPort:
		return wire.ErrorOther, true
	case noData:
		return wire.ErrorOther, x.why.about == whyBetween
	default:
		return 0, false
	}
}

// append appends the text of the extended error.
func (x extendedError) append(b []byte) []byte {
	w := &x.why
	switch w.about {
	case whyText:
		return append(b, w.text...)
	case whyNotSynced:
		return append(b, "not ready: the config store's full set has not arrived yet"...)
	case whyNotSettled:
		return append(b, "not ready: instances and other clusters have not all been heard since the start; ask again"...)
	case whyAsked:
		return append(b, "not ready: another cluster is being asked for the app; ask again"...)
	case whyNoSuchName:
		return append(b, "not found: no name of this zone has this form"...)
	case whyBetween:
		return append(append(b, "no app has this name; apps are at <app>.<namespace>."...), x.zone.cfg.Domain...)
	case whyNotHeld:
		return x.view.AppendMissing(b, x.app())
	case whyRenamed:
		return append(appendApp(append(b, "denied: "...), x.app()), " is the caller's own name for another app (as: in its AppEndpoints), which sidecars with Isthmus and xDS clients follow; its certificate has its own name, so ask for that one"...)
	case whyNoRoute:
		b = append(b, "not found: the caller's view has no route to "...)
		b = append(appendApp(b, x.app()), " in cluster "...)
		return appendPlain(b, x.asked.Name.Label(int(w.app)+2))
	case whyNoInstance:
		return append(appendApp(append(b, "not found: no such instance of "...), x.app()), " is ready"...)
	case whyLapsed:
		return append(append(append(b, "nothing has been heard from "...), w.text...), " for longer than its lease; served because whenStale is serve"...)
	case whyNotForwarded:
		b = append(x.who.address.AppendTo(append(b, "caller unknown: "...)), " is public and no instance's; "...)
		return append(b, "names outside the zone are looked up for it once it is listed (dns.forwarders)"...)
	case whyByServerName:
		return x.byServerName(b)
	case whyOtherPort:
		return x.otherPort(b)
	case whyUnknown:
		return x.unknown(b)
	}
	if x.outcome == outside {
		return append(append(b, "this server answers for "...), x.zone.cfg.Domain...)
	}
	return b
}

func (x extendedError) unknown(b []byte) []byte {
	w := &x.who
	b = append(b, "caller unknown: "...)
	if !w.address.IsValid() {
		return append(b, "the query came from no address"...)
	}
	b = w.address.AppendTo(b)
	if w.subnet {
		b = append(plain(x.query.From.Addr()).AppendTo(append(b, ", for whom "...)), " asks,"...)
	}
	switch {
	case w.shared:
		return append(b, " is the address of several apps; bind a listener to the app (listen.dns, as) and ask there"...)
	case w.subnet:
		return append(b, " is no instance's address; ask from one, or on a listener that is bound to an app (listen.dns, as)"...)
	case x.zone.believes(w.address) && x.asked.Subnet.Sent:
		b = append(b, " is a forwarder, and says /"...)
		b = appendNumber(b, uint(x.asked.Subnet.Prefix), 10)
		return append(b, " of its client's address; have it send all of it, /32 or /128"...)
	case x.zone.believes(w.address):
		return append(b, " is a forwarder, and does not say for whom it asks; have it send its client's address as EDNS Client Subnet, /32 or /128"...)
	case x.asked.Subnet.Sent:
		return append(b, " is no instance's address, and not in dns.forwarders, so the client subnet that it sends is not believed; list it there, or ask on a listener that is bound to an app (listen.dns, as)"...)
	}
	return append(b, " is no instance's address; ask from one, on a listener that is bound to an app (listen.dns, as), or by a forwarder that is listed (dns.forwarders) and sends the client's whole address"...)
}

// app is the app that the query's name says.
func (x extendedError) app() catalog.App {
	m, at := &x.asked.Name, int(x.why.app)
	id := m.Label(at)
	if x.why.trim {
		id = id[:len(id)-len(daprSuffix)]
	}
	return catalog.App{Namespace: m.Label(at + 1), ID: id}
}

func appendApp(b []byte, app catalog.App) []byte {
	return append(append(append(b, app.Namespace...), '/'), app.ID...)
}

// appendPlain appends a label where it is one that a cluster can have; what else it holds
// need not be printable.
func appendPlain(b []byte, label string) []byte {
	if !plainLabel(label) {
		return append(b, "that is asked for"...)
	}
	return append(b, label...)
}

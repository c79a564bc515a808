package zone

import (
	"net/netip"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// name is what a name below the zone says. Its strings are memory of the query's name.
type name struct {
	app     catalog.App
	cluster string // empty: by the caller's view
	host    string // a label before the app's, which is a shard's or an instance's
	base    int    // the label at which the name begins that a service is of
	zone    int    // the label at which the zone begins
	service service
	domain  bool // the zone is the domain, rather than Kubernetes'
}

// service is what is asked for below the name of an app.
type service uint8

const (
	noService   service = iota
	noProtocol          // _tcp.<name>, which has nothing but what is below it
	daprService         // _dapr._tcp.<name>
)

// label is the one that has the app-id.
func (n *name) label() uint8 {
	if n.host != "" {
		return uint8(n.base + 1)
	}
	return uint8(n.base)
}

// takeService takes the service's labels off a name that has so many labels below the
// zone, and returns how many are left.
func (n *name) takeService(m *wire.Name, below int) int {
	switch {
	case below > 0 && m.Label(0) == "_tcp":
		n.service, n.base = noProtocol, 1
	case below > 1 && m.Label(1) == "_tcp" && m.Label(0) == "_dapr":
		n.service, n.base = daprService, 2
	}
	return below - n.base
}

// inZone answers a name of the domain, with so many labels below it.
func (x *exchange) inZone(below int) {
	if !x.synced() {
		return
	}
	m := &x.asked.Name
	n := name{zone: below, domain: true}
	left := n.takeService(m, below)
	at := n.base
	switch {
	case below == 0:
		x.apex()
		return
	case below == 1 && m.Label(0) == "ns":
		x.nameserver()
		return
	case below == 1 && m.Label(0) == "dns-version":
		x.dnsVersion()
		return
	case below == 1: // a namespace or a cluster, whether it is there or not
		x.between(&n)
		return
	case left == 4:
		n.host = m.Label(at)
		at++
		fallthrough
	case left == 3:
		n.cluster = m.Label(at + 2)
		fallthrough
	case left == 2:
		n.app = catalog.App{Namespace: m.Label(at + 1), ID: m.Label(at)}
	default:
		x.missing(&n, notFound, whyNoSuchName)
		return
	}
	x.app(&n)
}

// daprSuffix is what Dapr appends to an app-id to name its service in Kubernetes.
const daprSuffix = "-dapr"

// service answers the name of one of Dapr's services in Kubernetes. It tells whether the
// name is one.
func (x *exchange) service(below int) bool {
	m := &x.asked.Name
	n := name{zone: below}
	if n.takeService(m, below) != 2 {
		return false
	}
	id, found := strings.CutSuffix(m.Label(n.base), daprSuffix)
	if !found || id == "" {
		return false
	}
	n.app = catalog.App{Namespace: m.Label(n.base + 1), ID: id}
	x.unnamed = n.service == noService
	if x.synced() {
		x.app(&n)
	}
	return true
}

// app answers the name of an app, and what is below it.
func (x *exchange) app(n *name) {
	if x.who.known {
		switch entry, ok := x.view.Entries.Get(n.app); {
		case ok && entry.Name() != entry.App:
			x.missing(n, denied, whyRenamed)
			return
		case ok:
			x.held(n, entry)
			return
		}
	}
	switch {
	case !plainLabel(n.app.ID) || !plainLabel(n.app.Namespace):
		x.missing(n, notFound, whyNoSuchName)
	case n.cluster == "" && n.domain && n.service == noService && x.zone.isCluster(n.app.Namespace):
		x.between(n) // <namespace>.<cluster>
	case !x.who.known:
		x.stranger(n)
	case n.app == x.who.app && !x.view.Open:
		x.itself(n)
	case x.view.Missing() == catalog.Denied:
		x.missing(n, denied, whyNotHeld)
	default:
		x.missing(n, notFound, whyNotHeld)
	}
}

// held answers the name of an app that the caller's view holds.
func (x *exchange) held(n *name, entry *catalog.Entry) {
	if n.cluster == "" {
		(&lookup{exchange: x, entry: entry}).answer(n)
		return
	}
	x.inCluster(n, entry)
}

// inCluster answers an app's name in a cluster: by the route of the caller's entry there.
func (x *exchange) inCluster(n *name, entry *catalog.Entry) {
	if r := routeTo(entry, n.cluster); r != nil {
		(&lookup{exchange: x, entry: entry, only: r}).answer(n)
		return
	}
	if !everywhere(entry) || !mayExport(x, n, entry) {
		x.missing(n, notFound, whyNoRoute)
	}
}

// routeTo is an entry's route to a cluster; nil where it has none.
func routeTo(entry *catalog.Entry, cluster string) *catalog.Route {
	for i := range entry.Routes {
		if r := &entry.Routes[i]; r.Cluster == cluster {
			return r
		}
	}
	return nil
}

// stranger answers for a caller that is not known: the names of gateways, and they tell
// nothing of the apps behind them.
func (x *exchange) stranger(n *name) {
	if n.cluster == "" || n.cluster == x.zone.cfg.Cluster || n.host != "" && !isShard(n.host) && !catalog.IsInstanceLabel(n.host) {
		x.missing(n, unknownCaller, whyUnknown)
		return
	}
	gateway := x.zone.gateways.load().byName[n.cluster]
	if gateway == nil {
		x.missing(n, unknownCaller, whyUnknown)
		return
	}
	x.throughGateway(n, gateway)
}

// isCluster tells whether a label is the name of this cluster or of one with a Cluster
// object.
func (z *Zone) isCluster(label string) bool {
	return label == z.cfg.Cluster || z.gateways.load().byName[label] != nil
}

// plainLabel tells whether an app or a namespace can have a name; see
// [catalog.CheckNamespace]. It is in lower case already.
func plainLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isShard tells whether a label is a shard's: a number below 65536, written in the one
// way.
func isShard(label string) bool {
	if len(label) == 0 || len(label) > 5 || len(label) > 1 && label[0] == '0' {
		return false
	}
	n := 0
	for i := range len(label) {
		if label[i] < '0' || label[i] > '9' {
			return false
		}
		n = n*10 + int(label[i]-'0')
	}
	return n < 1<<16
}

// appendInstance appends an instance's label: its address with hyphens, an IPv6 address in
// eight groups.
func appendInstance(b []byte, a netip.Addr) []byte {
	if a = plain(a); a.Is4() {
		for i, part := range a.As4() {
			if i > 0 {
				b = append(b, '-')
			}
			b = appendNumber(b, uint(part), 10)
		}
		return b
	}
	sixteen := a.As16()
	for i := 0; i < len(sixteen); i += 2 {
		if i > 0 {
			b = append(b, '-')
		}
		b = appendNumber(b, uint(sixteen[i])<<8|uint(sixteen[i+1]), 16)
	}
	return b
}

func appendNumber(b []byte, n, base uint) []byte {
	const digits = "0123456789abcdef"
	if n >= base {
		b = appendNumber(b, n/base, base)
	}
	return append(b, digits[n%base])
}

// parseInstance reads an instance's label, written as appendInstance writes it.
func parseInstance(label string) (a netip.Addr, ok bool) {
	var parts [8]uint
	count := 0
	for i := range len(label) {
		if label[i] == '-' {
			count++
		}
	}
	base, most := uint(10), uint(0xff)
	if count == 7 {
		base, most = 16, 0xffff
	} else if count != 3 {
		return a, false
	}
	at := 0
	for i := range len(label) {
		c := label[i]
		switch {
		case c == '-':
			at++
			continue
		case '0' <= c && c <= '9':
			parts[at] = parts[at]*base + uint(c-'0')
		case base == 16 && 'a' <= c && c <= 'f':
			parts[at] = parts[at]*base + uint(c-'a') + 10
		default:
			return a, false
		}
		if parts[at] > most {
			return a, false
		}
	}
	if base == 10 {
		a = netip.AddrFrom4([4]byte{byte(parts[0]), byte(parts[1]), byte(parts[2]), byte(parts[3])})
	} else {
		var sixteen [16]byte
		for i, part := range parts {
			sixteen[2*i], sixteen[2*i+1] = byte(part>>8), byte(part)
		}
		a = netip.AddrFrom16(sixteen)
	}
	var room [40]byte
	return a, string(appendInstance(room[:0], a)) == label
}

package zone

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
)

// gateways are those of every other cluster, packed. What stands is exchanged as a whole,
// by whoever first finds that it is not of the newest Clusters and Hosts: so a query
// that comes after a change never reads what was before.
type gateways struct {
	zone *Zone
	now  atomic.Pointer[packedClusters]
	mu   sync.Mutex // for who packs
}

type packedClusters struct {
	versions
	byName  map[string]*cluster
	unheard []string // clusters of which nothing has been heard yet, sorted
}

// versions tell what something was made of: each channel is closed, and another, once
// there is a newer value.
type versions struct{ clusters, hosts <-chan struct{} }

// cluster is another cluster. It is the same for as long as its Cluster object is there,
// so that the packed answers of plans can point to it.
type cluster struct {
	name string
	gone atomic.Bool
	now  atomic.Pointer[packedGateways]
}

// packedGateways are a cluster's, or why no address of them is known.
type packedGateways struct {
	addresses
	because string
	apps    map[catalog.App]*packedGateways // those for one app each; nil: none
}

func (c *cluster) load() (packed *addresses, because string) {
	now := c.now.Load()
	return &now.addresses, now.because
}

// loadFor is load for callers that may send no server name: those that lead to the app alone,
// if there are any. It is not inlined, so that others need not make room for it.
//
//go:noinline
func (c *cluster) loadFor(app catalog.App) (packed *addresses, because string) {
	now := c.now.Load()
	if own := now.apps[app]; own != nil {
		now = own
	}
	return &now.addresses, now.because
}

func (g *gateways) versions() (v versions, all *catalog.Gateways, known hosts.Addresses) {
	all, _, v.clusters = g.zone.topology.Clusters().Follow()
	if g.zone.cfg.Hosts != nil {
		known, _, v.hosts = g.zone.cfg.Hosts.Follow()
	}
	return v, all, known
}

func (g *gateways) hosts() hosts.Addresses {
	_, _, known := g.versions()
	return known
}

// load is what stands for the newest Clusters and Hosts.
func (g *gateways) load() *packedClusters {
	now := g.now.Load()
	if v, _, _ := g.versions(); now != nil && now.versions == v {
		return now
	}
	return g.pack()
}

// follow packs what has changed, and says what to wait for.
func (g *gateways) follow() versions { return g.load().versions }

func (g *gateways) pack() *packedClusters {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, all, known := g.versions()
	before := g.now.Load()
	switch {
	case before == nil:
		before = &packedClusters{}
	case before.versions == v:
		return before
	}
	next := &packedClusters{versions: v, byName: map[string]*cluster{}}
	if all != nil {
		next.unheard = all.Unheard
		for name, listed := range all.Addresses {
			c := before.byName[name]
			if c == nil {
				c = &cluster{name: name}
			}
			packed, because := packGateways(name, listed, known)
			c.now.Store(&packedGateways{*packed, because, packApps(name, all.Apps[name], known)})
			next.byName[name] = c
		}
	}
	g.now.Store(next)
	for name, c := range before.byName {
		if next.byName[name] == nil {
			c.gone.Store(true)
		}
	}
	return next
}

// packGateways packs the addresses of a cluster's gateways. An app's host name in the
// cluster has one port, that of the first gateway; so gateways on other ports are left
// out.
func packGateways(name string, listed []string, known hosts.Addresses) (packed *addresses, because string) {
	port := (&catalog.Cluster{Gateways: listed}).GatewayPort()
	var all []netip.Addr
	var without []string
	for _, gateway := range listed {
		host, p, err := net.SplitHostPort(gateway)
		if err != nil || p != port {
			continue
		}
		found := known.Of(host)
		if len(found) == 0 {
			without = append(without, host)
		}
		all = append(all, found...)
	}
	number, _ := strconv.ParseUint(port, 10, 16)
	packed = pack(all)
	packed.port = uint16(number)
	switch {
	case len(all) > 0:
	case len(without) > 0:
		because = "no address is known of the gateways of " + name + ": " + catalog.Brief(without)
	default:
		because = "the Cluster object " + name + " lists no gateway for all apps"
	}
	return packed, because
}

// packApps packs the addresses of the gateways that lead to one app each.
func packApps(name string, listed []catalog.AppGateway, known hosts.Addresses) map[catalog.App]*packedGateways {
	if len(listed) == 0 {
		return nil
	}
	each := map[catalog.App][]string{}
	for _, g := range listed {
		each[g.App] = append(each[g.App], g.Address)
	}
	all := make(map[catalog.App]*packedGateways, len(each))
	for app, addresses := range each {
		packed, because := packGateways(app.String()+" in "+name, addresses, known)
		packed.own = true
		all[app] = &packedGateways{addresses: *packed, because: because}
	}
	return all
}

// addresses are packed as records of the name that is asked for.
type addresses struct {
	records []byte // A, then AAAA
	four    int32  // how many are A
	port    uint16 // of gateways
	own     bool   // they are of gateways that lead to the app alone
}

// pack packs each address once, in the order given, with no room to spare.
func pack(all []netip.Addr) *addresses {
	unique := make([]netip.Addr, 0, len(all))
	seen := make(map[netip.Addr]struct{}, len(all))
	four := 0
	for _, a := range all {
		a = plain(a)
		if _, twice := seen[a]; twice {
			continue
		}
		seen[a] = struct{}{}
		unique = append(unique, a)
		if a.Is4() {
			four++
		}
	}
	p := &addresses{records: make([]byte, 0, four*wire.SizeA+(len(unique)-four)*wire.SizeAAAA), four: int32(four)}
	for _, family := range []bool{true, false} {
		for _, a := range unique {
			if a.Is4() == family {
				p.records = wire.AppendAddress(p.records, a)
			}
		}
	}
	return p
}

// of are the records of one family, and how long each is.
func (p *addresses) of(t wire.Type) (records []byte, size int) {
	if t == wire.TypeAAAA {
		return p.records[int(p.four)*wire.SizeA:], wire.SizeAAAA
	}
	return p.records[:int(p.four)*wire.SizeA], wire.SizeA
}

// none tells whether there are no addresses.
func (p *addresses) none() bool { return p == nil || len(p.records) == 0 }

// has tells whether an address is one of them.
func (p *addresses) has(a netip.Addr) bool {
	if p == nil {
		return false
	}
	t := wire.TypeA
	if a.Is6() {
		t = wire.TypeAAAA
	}
	bytes := a.AsSlice()
	records, size := p.of(t)
	for end := size; end <= len(records); end += size {
		if string(records[end-len(bytes):end]) == string(bytes) {
			return true
		}
	}
	return false
}

// each calls f with each address.
func (p *addresses) each(f func(netip.Addr)) {
	four, size := p.of(wire.TypeA)
	for end := size; end <= len(four); end += size {
		f(netip.AddrFrom4([4]byte(four[end-4 : end])))
	}
	six, size := p.of(wire.TypeAAAA)
	for end := size; end <= len(six); end += size {
		f(netip.AddrFrom16([16]byte(six[end-16 : end])))
	}
}

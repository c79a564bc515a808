package topology

import (
	"cmp"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// imported is an app that another cluster exports to this one.
type imported struct {
	*PeerExport
	cluster         string
	gateway         []string        // its addresses there, for all callers to share; see imported.behind
	port            string          // of them
	left            *[]string       // of its addresses those that are not another app's, nor refused; nil: all
	zones, versions *catalog.Labels // of the addresses that are left
	refused         uint32          // of its addresses those that may not be called without a gateway
	allowed         allowed         // of many entries of Allow; nil until it is asked for
}

// direct are the addresses of the instances there, for a cluster on one network.
func (i *imported) direct() []string {
	if i.left != nil {
		return *i.left
	}
	return i.Addresses
}

// behind are the addresses of the app behind the cluster's gateway. They are made once for all
// callers.
func (i *imported) behind(domain catalog.Domain, n *node, c *cluster) []string {
	if port := c.object.GatewayPort(); i.gateway == nil || i.port != port {
		shards := min(i.Shards, catalog.MaxShards)
		i.gateway, i.port = domain.GatewayAddresses(n.app, c.name, port, int(shards)), port
	}
	return i.gateway
}

// ready is how many instances there are ready. One whose address is another app's does not
// count, so that no call goes to it by the gateway instead. One whose address is refused does:
// where no other is left, calls go by the gateway.
func (i *imported) ready() uint32 {
	if i.left != nil {
		return min(i.Ready, uint32(len(*i.left))+i.refused)
	}
	return i.Ready
}

// allowed are the callers of one cluster that an export allows: by name, and with an empty
// name for any. Without it, a peer whose exports each have 10,000 entries would have them
// all looked through for each caller, with each of its changes.
type allowed map[catalog.App]struct{}

// fewEntries are looked through as they are.
const fewEntries = 16

// allows tells whether an app of this cluster, whose name is own, may call.
func (i *imported) allows(own string, caller catalog.App) bool {
	if len(i.Allow) <= fewEntries {
		return catalog.Allowed(i.Allow, own, caller)
	}
	if i.allowed == nil {
		i.allowed = allowedIn(i.Allow, func(a catalog.Allow) bool { return a.ForCluster(own) })
		if i.allowed == nil {
			i.allowed = allowed{}
		}
	}
	return i.allowed.has(caller)
}

func (a allowed) has(caller catalog.App) bool {
	for _, key := range [...]catalog.App{caller, {Namespace: caller.Namespace}, {ID: caller.ID}, {}} {
		if _, ok := a[key]; ok {
			return true
		}
	}
	return false
}

// allowedIn are the callers of one cluster, for which some of the entries are; nil for none.
func allowedIn(entries []catalog.Allow, cluster func(catalog.Allow) bool) (all allowed) {
	for _, e := range entries {
		if !cluster(e) {
			continue
		}
		if all == nil {
			all = make(allowed, len(entries))
		}
		all[catalog.App{Namespace: orAny(e.Namespace), ID: orAny(e.App)}] = struct{}{}
	}
	return all
}

// remotes are the clusters that export an app to this one, sorted by their names. There is
// one for most apps, for which a map would take five times as much.
type remotes []imported

func (r remotes) find(cluster string) (at int, found bool) {
	return slices.BinarySearchFunc(r, cluster, func(i imported, name string) int { return cmp.Compare(i.cluster, name) })
}

// of is what a cluster exports, until the remotes change; nil where it does not.
func (r remotes) of(cluster string) *imported {
	if at, found := r.find(cluster); found {
		return &r[at]
	}
	return nil
}

func (r *remotes) put(cluster string, export *PeerExport) {
	next := imported{PeerExport: export, cluster: cluster, zones: export.Zones, versions: export.Versions}
	at, found := r.find(cluster)
	if found {
		if old := &(*r)[at]; old.allowed != nil && slices.Equal(old.Allow, export.Allow) {
			next.allowed = old.allowed
		}
		(*r)[at] = next
		return
	}
	*r = slices.Insert(*r, at, next)
}

func (r *remotes) remove(cluster string) {
	if at, found := r.find(cluster); found {
		*r = slices.Delete(*r, at, at+1)
	}
}

package topology

import (
	"cmp"
	"slices"
)

// imported is an app that another cluster exports to this one.
type imported struct {
	*PeerExport
	cluster string
	gateway []string // its addresses there, for all callers to share; see Graph.gatewayOf
	port    string   // of them
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
	next := imported{PeerExport: export, cluster: cluster}
	at, found := r.find(cluster)
	if found {
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

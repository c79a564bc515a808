package peering

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// knowledge is what one peer has said, as far as it is needed to resume: the digest
// of each export. It belongs to one goroutine at a time.
type knowledge struct {
	digests map[catalog.App]uint64
	refused map[catalog.App]error // exports that can't be used
	told    bool                  // the topology has the peer's full set
}

func newKnowledge() *knowledge {
	return &knowledge{digests: map[catalog.App]uint64{}, refused: map[catalog.App]error{}}
}

// known lists the digests for a new stream.
func (k *knowledge) known() []*v1alpha1.Known {
	all := make([]*v1alpha1.Known, 0, len(k.digests))
	for app, digest := range k.digests {
		all = append(all, &v1alpha1.Known{App: wire.App(app), Digest: digest})
	}
	return all
}

// take makes a change of the topology from a message. An export that can't be used is
// left out by name, and the others stand.
func (k *knowledge) take(cluster string, m *v1alpha1.ExportsResponse) (topology.PeerChange, error) {
	change := topology.PeerChange{Cluster: cluster, Full: !k.told}
	for _, r := range m.GetRemoved() {
		app := appFromWire(r)
		delete(k.refused, app)
		if _, ok := k.digests[app]; ok {
			delete(k.digests, app)
			change.Delete = append(change.Delete, app)
		}
	}
	for _, w := range m.GetPut() {
		app := appFromWire(w.GetApp())
		export, err := fromWire(w)
		if err != nil {
			k.refuse(app, err, &change)
			continue
		}
		delete(k.refused, app)
		k.digests[app] = w.GetDigest()
		change.Put = append(change.Put, export)
	}
	if n := len(k.digests); n > maxExports {
		*k = *newKnowledge()
		return change, fmt.Errorf("cluster %s exports %d apps to this one; at most %d are taken", cluster, n, maxExports)
	}
	k.told = true
	return change, nil
}

// maxRefused bounds what is remembered of unusable exports.
const maxRefused = 100

func (k *knowledge) refuse(app catalog.App, err error, change *topology.PeerChange) {
	if len(k.refused) < maxRefused {
		k.refused[app] = err
	}
	if _, ok := k.digests[app]; ok {
		delete(k.digests, app)
		change.Delete = append(change.Delete, app)
	}
}

// err names one export that was refused, and how many there are.
func (k *knowledge) err() error {
	for app, err := range k.refused {
		return fmt.Errorf("%d exports refused, among them %s: %w", len(k.refused), app, err)
	}
	return nil
}

// fromWire checks an export and reads it.
func fromWire(w *v1alpha1.Export) (topology.PeerExport, error) {
	e := topology.PeerExport{App: appFromWire(w.GetApp()), Ready: w.GetReady(), Addresses: w.GetAddresses()}
	if err := e.App.Check(); err != nil {
		return e, err
	}
	if len(w.GetAllow()) > maxAllow || len(e.Addresses) > maxAddresses {
		return e, fmt.Errorf("%d callers and %d addresses; at most %d and %d are taken",
			len(w.GetAllow()), len(e.Addresses), maxAllow, maxAddresses)
	}
	for _, address := range e.Addresses {
		if a, err := netip.ParseAddrPort(address); err != nil || a.Port() == 0 {
			return e, fmt.Errorf("address %q: want ip:port", address)
		}
	}
	e.Allow = make([]catalog.Allow, len(w.GetAllow()))
	for i, a := range w.GetAllow() {
		e.Allow[i] = catalog.Allow{Cluster: a.GetCluster(), Namespace: a.GetNamespace(), App: a.GetApp()}
	}
	return e, nil
}

package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// knowledge is what one peer has said, as far as it is needed to resume: the digest
// of each export. It belongs to one goroutine at a time.
type knowledge struct {
	digests map[catalog.App]uint64
	sizes   map[catalog.App]int   // of the same exports, in bytes on the wire
	bytes   int                   // of all of them
	refused map[catalog.App]error // exports that can't be used
	told    bool                  // the topology has the peer's full set
}

func newKnowledge() *knowledge {
	return &knowledge{digests: map[catalog.App]uint64{}, sizes: map[catalog.App]int{}, refused: map[catalog.App]error{}}
}

// note keeps what is needed of an export that is taken.
func (k *knowledge) note(app catalog.App, w *v1alpha1.Export) {
	k.forget(app)
	k.digests[app], k.sizes[app] = w.GetDigest(), proto.Size(w)
	k.bytes += k.sizes[app]
}

// forget tells whether there was anything to forget.
func (k *knowledge) forget(app catalog.App) bool {
	_, known := k.digests[app]
	k.bytes -= k.sizes[app]
	delete(k.digests, app)
	delete(k.sizes, app)
	return known
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
// left out by name, and the others stand. Of two exports of one app, the last counts.
func (k *knowledge) take(cluster string, m *v1alpha1.ExportsResponse) (topology.PeerChange, error) {
	change := topology.PeerChange{Cluster: cluster, Full: !k.told}
	for _, r := range m.GetRemoved() {
		app := appFromWire(r)
		delete(k.refused, short(app))
		if k.forget(app) {
			change.Delete = append(change.Delete, app)
		}
	}
	said := make(map[catalog.App]bool, len(m.GetPut()))
	for _, w := range slices.Backward(m.GetPut()) {
		app := appFromWire(w.GetApp())
		if said[app] {
			continue
		}
		said[app] = true
		export, err := fromWire(w)
		if err != nil {
			k.refuse(app, err, &change)
			continue
		}
		delete(k.refused, app)
		k.note(app, w)
		change.Put = append(change.Put, export)
	}
	if err := k.check(cluster); err != nil {
		*k = *newKnowledge()
		return change, err
	}
	k.told = true
	return change, nil
}

// check holds what a peer says to its bounds.
func (k *knowledge) check(cluster string) error {
	if n := len(k.digests); n > maxExports {
		return fmt.Errorf("cluster %s exports %d apps to this one; at most %d are taken", cluster, n, maxExports)
	}
	if k.bytes > maxBytes {
		return fmt.Errorf("what cluster %s exports to this one is %d bytes; at most %d are taken", cluster, k.bytes, maxBytes)
	}
	return nil
}

// maxRefused bounds what is remembered of unusable exports.
const maxRefused = 100

func (k *knowledge) refuse(app catalog.App, err error, change *topology.PeerChange) {
	if len(k.refused) < maxRefused {
		k.refused[short(app)] = err
	}
	if k.forget(app) {
		change.Delete = append(change.Delete, app)
	}
}

// maxName is longer than any name that can be used.
const maxName = 64

// short is an app as it is remembered, logged and told, whatever a peer calls it.
func short(app catalog.App) catalog.App {
	return catalog.App{
		Namespace: strings.Clone(app.Namespace[:min(len(app.Namespace), maxName)]),
		ID:        strings.Clone(app.ID[:min(len(app.ID), maxName)]),
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
	if short(e.App) != e.App {
		return e, fmt.Errorf("names of %d and %d bytes; at most %d fit", len(e.App.Namespace), len(e.App.ID), maxName-1)
	}
	if err := e.App.Check(); err != nil {
		return e, err
	}
	if len(w.GetAllow()) > maxAllow || len(e.Addresses) > maxAddresses {
		return e, fmt.Errorf("%d callers and %d addresses; at most %d and %d are taken",
			len(w.GetAllow()), len(e.Addresses), maxAllow, maxAddresses)
	}
	for _, address := range e.Addresses {
		if a, err := netip.ParseAddrPort(address); err != nil || a.Port() == 0 {
			return e, fmt.Errorf("address %.64q: want ip:port", address)
		}
	}
	e.Allow = make([]catalog.Allow, len(w.GetAllow()))
	for i, a := range w.GetAllow() {
		e.Allow[i] = catalog.Allow{Cluster: a.GetCluster(), Namespace: a.GetNamespace(), App: a.GetApp()}
	}
	return e, nil
}

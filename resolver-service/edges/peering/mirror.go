package peering

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// exportMirror is a copy of one peer's exports: as much of each as a stream needs to resume, and
// the changes that the topology does not have yet. It belongs to one goroutine at a time.
type exportMirror struct {
	exports map[catalog.App]mirroredExport
	bytes   int // of all exports, encoded
	ready   int // exports with a ready instance
	named   int // exports of which only the name is known
	refused map[catalog.App]error
	stream  uint32 // number of the current stream, to find exports that its initial set lacks
	room    int    // bytes of those that a request names

	initial bool                                 // the initial set of the stream is incomplete
	synced  bool                                 // an initial set was complete once
	pending map[catalog.App]*topology.PeerExport // nil: withdrawn
}

// mirroredExport is the kept part of an export.
type mirroredExport struct {
	digest uint64
	bytes  int32
	stream uint32 // that named it last
	ready  bool
	named  bool
}

func newExportMirror() *exportMirror {
	return &exportMirror{
		exports: map[catalog.App]mirroredExport{}, refused: map[catalog.App]error{}, pending: map[catalog.App]*topology.PeerExport{}, room: maxKnownBytes,
	}
}

// maxKnownBytes bounds the request of a stream. The peer sends again what the request does not
// list.
const maxKnownBytes = 3 << 20

// resume lists the known digests for a new stream. Once the initial set is complete, the mirror
// drops exports that neither this list nor the set names.
func (k *exportMirror) resume() []*v1alpha1.Known {
	k.stream++
	k.initial = true
	clear(k.refused)
	all := make([]*v1alpha1.Known, 0, len(k.exports))
	room := k.room
	for app, s := range k.exports {
		if room -= len(app.Namespace) + len(app.ID) + knownOverhead; room < 0 {
			break
		}
		s.stream = k.stream
		k.exports[app] = s
		all = append(all, &v1alpha1.Known{App: wire.App(app), Digest: s.digest})
	}
	return all
}

// knownOverhead is the size in bytes of a known export besides its names.
const knownOverhead = 20

// receive processes a message. An unusable or excess export is refused by name, and the others
// stay. Of two exports of one app, the last one counts.
func (k *exportMirror) receive(m *v1alpha1.ExportsResponse) {
	for _, r := range m.GetRemoved() {
		app := wire.AppOf(r)
		delete(k.refused, shortName(app))
		k.remove(app)
	}
	for _, w := range m.GetPut() {
		app := wire.AppOf(w.GetApp())
		export, err := fromWire(w)
		if err != nil {
			k.refuse(app, err)
			continue
		}
		delete(k.refused, app)
		if err := k.put(export, w); err != nil {
			k.refuse(app, err)
		}
	}
	if k.initial && !m.GetMore() {
		k.sweep()
		k.initial, k.synced = false, true
	}
}

// put keeps a usable export, within the bounds of one peer.
func (k *exportMirror) put(export *topology.PeerExport, w *v1alpha1.Export) error {
	before, known := k.exports[export.App]
	bytes := max(proto.Size(w), len(export.Allow)*allowBytes)
	if !known && len(k.exports) >= maxExports {
		return fmt.Errorf("the cluster exports more than %d apps to this one, which is the limit; export fewer there", maxExports)
	}
	if k.bytes-int(before.bytes)+bytes > maxBytes {
		return fmt.Errorf("the cluster's exports to this one are more than %d bytes, which is the limit; export fewer apps there, or name fewer callers",
			maxBytes)
	}
	k.remove(export.App)
	k.exports[export.App] = mirroredExport{w.GetDigest(), int32(bytes), k.stream, export.Ready > 0, export.Named}
	k.bytes += bytes
	if export.Ready > 0 {
		k.ready++
	}
	if export.Named {
		k.named++
	}
	k.pending[export.App] = export
	return nil
}

// allowBytes is what a caller takes here that is named, also if its message is empty.
const allowBytes = int(unsafe.Sizeof(catalog.Allow{}))

// remove drops an export.
func (k *exportMirror) remove(app catalog.App) {
	s, known := k.exports[app]
	if !known {
		return
	}
	if s.ready {
		k.ready--
	}
	if s.named {
		k.named--
	}
	k.bytes -= int(s.bytes)
	delete(k.exports, app)
	k.pending[app] = nil
}

// sweep drops the exports that a complete initial set has not named.
func (k *exportMirror) sweep() {
	for app, s := range k.exports {
		if s.stream != k.stream {
			k.remove(app)
		}
	}
}

// nextChange returns the next change for the topology, of at most so many apps. all tells whether
// nothing more is pending.
func (k *exportMirror) nextChange(cluster string, most int) (change topology.PeerChange, all bool) {
	change.Cluster = cluster
	for app, export := range k.pending {
		if len(change.Put)+len(change.Delete) == most {
			return change, false
		}
		delete(k.pending, app)
		if export == nil {
			change.Delete = append(change.Delete, app)
		} else {
			change.Put = append(change.Put, *export)
		}
	}
	k.pending = map[catalog.App]*topology.PeerExport{} // one that was large stays large
	return change, true
}

// maxRefused bounds how many unusable exports are kept for status.
const maxRefused = 100

func (k *exportMirror) refuse(app catalog.App, err error) {
	if len(k.refused) < maxRefused {
		k.refused[shortName(app)] = err
	}
	k.remove(app)
}

// maxName is longer than any valid name: an actor type's is the longest.
const maxName = catalog.MaxActorType + 16

// shortName cuts an app's names to a length that can be kept and logged.
func shortName(app catalog.App) catalog.App {
	return catalog.App{
		Namespace: strings.Clone(app.Namespace[:min(len(app.Namespace), maxName)]),
		ID:        strings.Clone(app.ID[:min(len(app.ID), maxName)]),
	}
}

// fromWire decodes and checks an export.
func fromWire(w *v1alpha1.Export) (e *topology.PeerExport, err error) {
	e = &topology.PeerExport{
		App: wire.AppOf(w.GetApp()), Ready: w.GetReady(), Draining: w.GetDraining(), Shards: w.GetShards(), Addresses: w.GetAddresses(),
		Instances: w.GetInstances(),
	}
	if shortName(e.App) != e.App {
		return nil, fmt.Errorf("namespace of %d and app-id of %d bytes; at most %d are allowed", len(e.App.Namespace), len(e.App.ID), maxName-1)
	}
	if actors, ok := e.App.Actors(); ok {
		return actorsFromWire(e, actors, w)
	}
	if err := e.App.CheckHost(); err != nil {
		return nil, err
	}
	if e.Ready > maxInstances || e.Draining > maxInstances || e.Shards > catalog.MaxShards {
		return nil, fmt.Errorf("%d instances ready, %d draining and %d shards; at most %d, %d and %d are allowed",
			e.Ready, e.Draining, e.Shards, maxInstances, maxInstances, catalog.MaxShards)
	}
	if len(e.Instances) > catalog.MaxShards {
		return nil, fmt.Errorf("%d named instances; at most %d are allowed", len(e.Instances), catalog.MaxShards)
	}
	if len(w.GetAllow()) > maxAllow || len(e.Addresses) > maxAddresses {
		return nil, fmt.Errorf("%d callers and %d addresses; at most %d and %d are allowed",
			len(w.GetAllow()), len(e.Addresses), maxAllow, maxAddresses)
	}
	for _, address := range e.Addresses {
		if a, err := netip.ParseAddrPort(address); err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("address %.64q: want ip:port", address)
		}
	}
	if e.Zones, err = labelsFromWire("zones", w, w.GetZones(), w.GetZoneOf()); err != nil {
		return nil, err
	}
	if e.Versions, err = labelsFromWire("versions", w, w.GetVersions(), w.GetVersionOf()); err != nil {
		return nil, err
	}
	e.Allow = wire.ParseAllow(w.GetAllow())
	if w.GetNamed() {
		return &topology.PeerExport{App: e.App, Allow: e.Allow, Ready: min(e.Ready, 1), Named: true}, nil
	}
	return e, nil
}

// actorsFromWire decodes and checks the export of an actor type.
func actorsFromWire(e *topology.PeerExport, actors catalog.Actors, w *v1alpha1.Export) (*topology.PeerExport, error) {
	if err := cmp.Or(catalog.CheckNamespace(actors.Namespace), catalog.CheckActorType(actors.Type)); err != nil {
		return nil, err
	}
	if w.GetActor() == nil || catalog.CheckInstance(w.GetActor().GetObject()) != nil || len(w.GetAllow()) > maxAllow {
		return nil, fmt.Errorf("an actor type with %d callers, by the object %.64q; want an object's name and at most %d callers", len(w.GetAllow()), w.GetActor().GetObject(), maxAllow)
	}
	actor := &topology.ActorExport{Object: w.GetActor().GetObject(), Draining: w.GetActor().GetDraining()}
	return &topology.PeerExport{App: e.App, Allow: wire.ParseAllow(w.GetAllow()), Actor: actor}, nil
}

// labelsFromWire decodes the labels of an export's instances or, if it has none, of its addresses.
func labelsFromWire(what string, w *v1alpha1.Export, names []string, of []byte) (*catalog.Labels, error) {
	instances, addresses := len(w.GetInstances()), len(w.GetAddresses())
	if instances > 0 && addresses > 0 && len(names) > 0 {
		return nil, fmt.Errorf("%s for both %d named instances and %d addresses; want %s for one of the two", what, instances, addresses, what)
	}
	labels, err := catalog.ParseLabels(names, of, instances+addresses)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return labels, nil
}

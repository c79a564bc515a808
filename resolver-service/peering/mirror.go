package peering

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// knowledge is what one peer has said: of each export as much as is needed to resume,
// and what the topology has yet to be told. It belongs to one goroutine at a time.
type exportMirror struct {
	exports map[catalog.App]mirroredExport
	bytes   int // of all exports, on the wire
	ready   int // exports with a ready instance
	refused map[catalog.App]error
	stream  uint32 // numbers the streams, to tell what a first set has named

	initial bool                                 // the first set of the stream is not complete yet
	synced  bool                                 // a first set was complete once: the topology can know all of it
	pending map[catalog.App]*topology.PeerExport // nil: gone
}

// said is what is remembered of an export.
type mirroredExport struct {
	digest uint64
	bytes  int32
	stream uint32 // that it was named on last, as known or as new
	ready  bool
}

func newExportMirror() *exportMirror {
	return &exportMirror{
		exports: map[catalog.App]mirroredExport{}, refused: map[catalog.App]error{}, pending: map[catalog.App]*topology.PeerExport{},
	}
}

// maxKnown bounds the request of a stream, in bytes. What it does not name is sent
// again.
const maxKnownBytes = 3 << 20

// begin lists the digests for a new stream. What the first set does not name, and the
// list neither, is gone once that set is complete.
func (k *exportMirror) resume() []*v1alpha1.Known {
	k.stream++
	k.initial = true
	clear(k.refused)
	all := make([]*v1alpha1.Known, 0, len(k.exports))
	room := maxKnownBytes
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

// knownOverhead is how much more a known export takes than its names, in bytes.
const knownOverhead = 20

// take notes what a message says. An export that can't be used is left out by name, and
// the others stand; so is one that is too much. Of two exports of one app, the last counts.
func (k *exportMirror) receive(m *v1alpha1.ExportsResponse) {
	for _, r := range m.GetRemoved() {
		app := appFromWire(r)
		delete(k.refused, shortName(app))
		k.remove(app)
	}
	for _, w := range m.GetPut() {
		app := appFromWire(w.GetApp())
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

// note keeps an export that can be used, within the bounds of what a peer may say.
func (k *exportMirror) put(export *topology.PeerExport, w *v1alpha1.Export) error {
	before, known := k.exports[export.App]
	bytes := proto.Size(w)
	if !known && len(k.exports) >= maxExports {
		return fmt.Errorf("the cluster exports more than %d apps to this one, which is all that are taken; export less there", maxExports)
	}
	if k.bytes-int(before.bytes)+bytes > maxBytes {
		return fmt.Errorf("what the cluster exports to this one is more than %d bytes, which is all that is taken; export less there, or name fewer callers",
			maxBytes)
	}
	k.remove(export.App)
	k.exports[export.App] = mirroredExport{w.GetDigest(), int32(bytes), k.stream, export.Ready > 0}
	k.bytes += bytes
	if export.Ready > 0 {
		k.ready++
	}
	k.pending[export.App] = export
	return nil
}

// forget takes an export back.
func (k *exportMirror) remove(app catalog.App) {
	s, known := k.exports[app]
	if !known {
		return
	}
	if s.ready {
		k.ready--
	}
	k.bytes -= int(s.bytes)
	delete(k.exports, app)
	k.pending[app] = nil
}

// sweep takes back what a complete first set has not named.
func (k *exportMirror) sweep() {
	for app, s := range k.exports {
		if s.stream != k.stream {
			k.remove(app)
		}
	}
}

// change is the next part of what the topology has to be told, at most so many apps,
// and whether that is all.
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
	return change, true
}

// maxRefused bounds what is remembered of unusable exports.
const maxRefused = 100

func (k *exportMirror) refuse(app catalog.App, err error) {
	if len(k.refused) < maxRefused {
		k.refused[shortName(app)] = err
	}
	k.remove(app)
}

// maxName is longer than any name that can be used.
const maxName = 64

// short is an app as it is remembered, logged and told, whatever a peer calls it.
func shortName(app catalog.App) catalog.App {
	return catalog.App{
		Namespace: strings.Clone(app.Namespace[:min(len(app.Namespace), maxName)]),
		ID:        strings.Clone(app.ID[:min(len(app.ID), maxName)]),
	}
}

// fromWire checks an export and reads it.
func fromWire(w *v1alpha1.Export) (e *topology.PeerExport, err error) {
	e = &topology.PeerExport{
		App: appFromWire(w.GetApp()), Ready: w.GetReady(), Draining: w.GetDraining(), Shards: w.GetShards(), Addresses: w.GetAddresses(),
		Instances: w.GetInstances(),
	}
	if shortName(e.App) != e.App {
		return nil, fmt.Errorf("names of %d and %d bytes; at most %d fit", len(e.App.Namespace), len(e.App.ID), maxName-1)
	}
	if err := e.App.Check(); err != nil {
		return nil, err
	}
	if e.Ready > maxInstances || e.Draining > maxInstances || e.Shards > catalog.MaxShards {
		return nil, fmt.Errorf("%d instances ready, %d draining and %d shards; at most %d, %d and %d are taken",
			e.Ready, e.Draining, e.Shards, maxInstances, maxInstances, catalog.MaxShards)
	}
	if len(e.Instances) > catalog.MaxShards {
		return nil, fmt.Errorf("%d instances by name; at most %d are taken", len(e.Instances), catalog.MaxShards)
	}
	if len(w.GetAllow()) > maxAllow || len(e.Addresses) > maxAddresses {
		return nil, fmt.Errorf("%d callers and %d addresses; at most %d and %d are taken",
			len(w.GetAllow()), len(e.Addresses), maxAllow, maxAddresses)
	}
	for _, address := range e.Addresses {
		if a, err := netip.ParseAddrPort(address); err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("address %.64q: want ip:port", address)
		}
	}
	if e.Zones, err = zonesFromWire(w); err != nil {
		return nil, err
	}
	e.Allow = make([]catalog.Allow, len(w.GetAllow()))
	for i, a := range w.GetAllow() {
		e.Allow[i] = catalog.Allow{Cluster: a.GetCluster(), Namespace: a.GetNamespace(), App: a.GetApp()}
	}
	return e, nil
}

// zonesFromWire reads the zones of an export's instances or, where there are none, of its
// addresses.
func zonesFromWire(w *v1alpha1.Export) (*catalog.Zones, error) {
	instances, addresses := len(w.GetInstances()), len(w.GetAddresses())
	if instances > 0 && addresses > 0 && len(w.GetZones()) > 0 {
		return nil, fmt.Errorf("zones of %d instances by name, or of %d addresses; want one of the two", instances, addresses)
	}
	return catalog.ParseZones(w.GetZones(), w.GetZoneOf(), instances+addresses)
}

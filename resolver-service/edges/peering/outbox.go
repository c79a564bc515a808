package peering

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// outbox turns views into messages: the first view as a difference from what the peer knows, each
// later one as a difference from the view before.
type outbox struct {
	cluster string
	known   map[catalog.App]uint64 // digests, until the first view
	sent    *topology.PeerView
	latest  uint64 // revision; that of a view by another interest may be lower

	tooLarge func(app catalog.App, bytes int) // is called for an export that is too large to send
}

// maxExport is the largest export that is sent, in bytes.
const maxExport = maxMessage / 2

func newOutbox(cluster string, known []*v1alpha1.Known) *outbox {
	o := &outbox{cluster: cluster, known: make(map[catalog.App]uint64, len(known)), tooLarge: func(catalog.App, int) {}}
	for _, k := range known {
		o.known[wire.AppOf(k.GetApp())] = k.GetDigest()
	}
	return o
}

// empty is a message that only renews the lease. Before the first view it says that more follows.
func (o *outbox) empty(view *topology.PeerView) *v1alpha1.ExportsResponse {
	m := &v1alpha1.ExportsResponse{Cluster: o.cluster, More: view == nil}
	if view != nil {
		m.Revision = o.revision(view)
	}
	return m
}

func (o *outbox) revision(view *topology.PeerView) uint64 {
	o.latest = max(o.latest, view.Revision)
	return o.latest
}

// completes returns the view if the peer has all of it after the messages so far, and nil
// otherwise.
func (o *outbox) completes(view *topology.PeerView) *topology.PeerView {
	if o.sent != view {
		return nil
	}
	return view
}

// messages yields the messages that lead the peer to a view. Each is made after the one before
// was sent.
func (o *outbox) messages(view *topology.PeerView) iter.Seq2[*v1alpha1.ExportsResponse, error] {
	edits := o.difference
	if o.sent == nil {
		edits = o.first
	}
	return func(yield func(*v1alpha1.ExportsResponse, error) bool) {
		first := o.sent == nil
		p := &batch{cluster: o.cluster, revision: o.revision(view), more: first, yield: yield, tooLarge: o.tooLarge}
		p.begin()
		if !edits(view, p) {
			return
		}
		p.more = false
		p.message.More = false
		o.sent, o.known = view, nil
		yield(p.message, nil)
	}
}

// first adds what the peer does not know, or no longer as it is.
func (o *outbox) first(view *topology.PeerView, p *batch) bool {
	for app, export := range view.Exports.All() {
		digest, known := o.known[app]
		delete(o.known, app)
		if !p.put(export, func(w *v1alpha1.Export) bool { return !known || digest != w.Digest }) {
			return false
		}
	}
	for app := range o.known {
		if !p.remove(app) {
			return false
		}
	}
	return true
}

// difference adds what has changed since the view before.
func (o *outbox) difference(view *topology.PeerView, p *batch) bool {
	same := func(a, b *topology.PeerExport) bool { return a == b }
	for edit := range view.Exports.Diff(&o.sent.Exports, same) {
		var ok bool
		if edit.Remove {
			ok = p.remove(edit.App)
		} else {
			ok = p.put(edit.Value, func(*v1alpha1.Export) bool { return true })
		}
		if !ok {
			return false
		}
	}
	return true
}

// batch fills one message after the other. Its methods return false once the consumer stops.
type batch struct {
	cluster  string
	revision uint64
	more     bool // the messages belong to an initial set
	yield    func(*v1alpha1.ExportsResponse, error) bool

	tooLarge func(app catalog.App, bytes int)

	message *v1alpha1.ExportsResponse
	bytes   int
}

func (p *batch) begin() {
	p.message = &v1alpha1.ExportsResponse{Cluster: p.cluster, Revision: p.revision, More: p.more}
	p.bytes = 0
}

// room makes room for so many bytes.
func (p *batch) room(bytes int) bool {
	if p.bytes += bytes; p.bytes <= fullMessage || p.bytes == bytes {
		return true
	}
	if !p.yield(p.message, nil) {
		return false
	}
	p.begin()
	p.bytes = bytes
	return true
}

func (p *batch) put(e *topology.PeerExport, wanted func(*v1alpha1.Export) bool) bool {
	w, err := toWire(e)
	if err != nil {
		p.yield(nil, fmt.Errorf("app %s: %w", e.App, err))
		return false
	}
	if !wanted(w) {
		return true
	}
	bytes := proto.Size(w)
	if bytes > maxExport {
		p.tooLarge(e.App, bytes)
		return p.remove(e.App) // the peer drops an earlier version of it
	}
	if !p.room(bytes) {
		return false
	}
	p.message.Put = append(p.message.Put, w)
	return true
}

func (p *batch) remove(app catalog.App) bool {
	w := wire.App(app)
	if !p.room(proto.Size(w)) {
		return false
	}
	p.message.Removed = append(p.message.Removed, w)
	return true
}

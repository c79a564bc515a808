package stream

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// prepared is a message from one view to another, encoded. Streams of the same app,
// and all of apps without a selection, go from the same view to the same view: what
// was encoded for one is sent to all.
type prepared struct {
	from, to *catalog.View
	encoded  *grpc.PreparedMsg
	revision uint64
	size     int
	entries  int
}

// message is what brings the client from the view that it has to another.
func (w *watch) message(to *catalog.View) (*prepared, error) {
	special := w.drained != 0 || w.sent == nil && len(w.hello.known) > 0
	if !special {
		if last := w.s.latest.Load(); last != nil && last.from == w.sent && last.to == to {
			return last, nil
		}
	}
	m := &pb.WatchResponse{Revision: to.Revision, Open: to.Open, Rule: to.Rule}
	if w.drained != 0 {
		m.Drained, m.Revision = true, max(w.drained, to.Revision)
	}
	if w.sent == nil {
		first(m, to, w.hello.known)
	} else {
		difference(m, w.sent, to)
	}
	msg := &prepared{from: w.sent, to: to, encoded: &grpc.PreparedMsg{}, revision: m.Revision, size: proto.Size(m), entries: len(m.Put) + len(m.Removed)}
	if err := msg.encoded.Encode(w.stream, m); err != nil {
		return nil, fmt.Errorf("encode revision %d: %w", m.Revision, err)
	}
	if !special {
		w.s.latest.Store(msg)
	}
	return msg, nil
}

// first makes the client's view equal to another, given the digests of what it has.
func first(m *pb.WatchResponse, to *catalog.View, known map[catalog.App]uint64) {
	m.Gateways = wire.Gateways(to.Gateways)
	m.Put = make([]*pb.ViewEntry, 0, max(to.Entries.Len()-len(known), 0))
	for app, entry := range to.Entries.All() {
		if digest, has := known[app]; !has || digest != wire.Digest(entry) {
			m.Put = append(m.Put, wire.Entry(entry))
		}
	}
	for app := range known {
		if _, stays := to.Entries.Get(app); !stays {
			m.Removed = append(m.Removed, wire.App(app))
		}
	}
}

// difference is what leads from one view to another.
func difference(m *pb.WatchResponse, from, to *catalog.View) {
	if !to.Gateways.Equal(from.Gateways) {
		m.Gateways = wire.Gateways(to.Gateways)
	}
	for edit := range to.Entries.Diff(&from.Entries, same) {
		if edit.Remove {
			m.Removed = append(m.Removed, wire.App(edit.App))
		} else {
			m.Put = append(m.Put, wire.Entry(edit.Value))
		}
	}
}

// same tells whether the client would see any difference. Most entries of two views
// are one and the same; after a change elsewhere in a selection they are others that
// say the same.
func same(a, b *catalog.Entry) bool {
	return a == b || a.SameRoutes(b) && (a.Rule == b.Rule || a.Rule.String() == b.Rule.String())
}

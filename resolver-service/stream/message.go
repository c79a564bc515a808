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
	from, to    *catalog.View
	provisional bool
	encoded     *grpc.PreparedMsg
	revision    uint64
	size        int
	entries     int
}

// message is what brings the client from the view that it has to another.
func (w *watch) message(to *catalog.View, provisional bool) (*prepared, error) {
	special := w.drained != 0 || w.sent == nil && len(w.hello.known) > 0
	if !special {
		if last := w.s.latest.Load(); last != nil && last.from == w.sent && last.to == to && last.provisional == provisional {
			return last, nil
		}
	}
	m := &draft{WatchResponse: pb.WatchResponse{Revision: to.Revision, Open: to.Open, Rule: to.Rule, Provisional: provisional}}
	if w.drained != 0 {
		m.Drained, m.Revision = true, max(w.drained, to.Revision)
	}
	if w.sent == nil {
		m.first(to, w.hello.known)
	} else {
		m.difference(w.sent, to)
	}
	m.ProtoReflect().SetUnknown(m.puts)
	msg := &prepared{
		from: w.sent, to: to, provisional: provisional, encoded: &grpc.PreparedMsg{},
		revision: m.Revision, size: proto.Size(&m.WatchResponse), entries: m.entries,
	}
	if err := msg.encoded.Encode(w.stream, &m.WatchResponse); err != nil {
		return nil, fmt.Errorf("encode revision %d: %w", m.Revision, err)
	}
	if !special {
		w.s.latest.Store(msg)
	}
	return msg, nil
}

// draft is a message that is being made. Its field put is encoded already, in puts,
// and joins the rest as bytes.
type draft struct {
	pb.WatchResponse
	puts    []byte
	entries int // and removals
}

func (m *draft) put(e *catalog.Entry) {
	m.puts = wire.AppendPut(m.puts, e)
	m.entries++
}

func (m *draft) remove(app catalog.App) {
	m.Removed = append(m.Removed, wire.App(app))
	m.entries++
}

// first makes the client's view equal to another, given the digests of what it has.
func (m *draft) first(to *catalog.View, known map[catalog.App]uint64) {
	m.Gateways = wire.Gateways(to.Gateways)
	for app, entry := range to.Entries.All() {
		if digest, has := known[app]; !has || digest != wire.Digest(entry) {
			m.put(entry)
		}
	}
	for app := range known {
		if _, stays := to.Entries.Get(app); !stays {
			m.remove(app)
		}
	}
}

// difference is what leads from one view to another.
func (m *draft) difference(from, to *catalog.View) {
	if !to.Gateways.Equal(from.Gateways) {
		m.Gateways = wire.Gateways(to.Gateways)
	}
	for edit := range to.Entries.Diff(&from.Entries, same) {
		if edit.Remove {
			m.remove(edit.App)
		} else {
			m.put(edit.Value)
		}
	}
}

// same tells whether the client would see any difference. Most entries of two views
// are one and the same; after a change elsewhere in a selection they are others that
// say the same.
func same(a, b *catalog.Entry) bool {
	return a == b || a.SameRoutes(b) && (a.Rule == b.Rule || a.Rule.String() == b.Rule.String())
}

package stream

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// prepared is an encoded message from one view to another. Streams of the same app, and of all
// apps without a selection, go from the same view to the same view, so they share the message.
type prepared struct {
	from, to    *catalog.View
	provisional bool
	encoded     []byte
	revision    uint64
	entries     int

	holders int32 // streams that send it, and Server.latest; see hold
	mu      sync.Mutex
	uncount func() // gives back its bytes to Server.messages
}

// hold keeps a message's bytes counted until release. It returns false if the message has no
// holder any more.
func (p *prepared) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == 0 {
		return false
	}
	p.holders++
	return true
}

func (p *prepared) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders--; p.holders == 0 && p.uncount != nil {
		p.uncount()
	}
}

// uncountedBytes is the longest message that does not count in Server.messages. gRPC buffers as
// much of each stream before it waits for the client.
const uncountedBytes = 64 << 10

// message returns the message from the client's view to another one. The caller holds it.
func (w *watch) message(ctx context.Context, to *catalog.View, provisional bool) (*prepared, error) {
	special := w.drained != 0 || w.sent == nil && w.hello.known != nil
	if last := w.last(to, provisional); last != nil && !special {
		return last, nil
	}
	var free func()
	if n := w.estimate(to); n > uncountedBytes {
		ctx, cancel := context.WithTimeout(ctx, w.s.cfg.StallTimeout)
		defer cancel()
		var err error
		if free, err = w.s.messages.Acquire(ctx, w.client, n); err != nil {
			return nil, status.Error(codes.Unavailable, "too many clients are being sent their views; reconnect")
		}
		// Another stream may have made it meanwhile.
		if last := w.last(to, provisional); last != nil && !special {
			free()
			return last, nil
		}
	}
	msg, err := w.encode(to, provisional)
	if err != nil {
		if free != nil {
			free()
		}
		return nil, fmt.Errorf("encode revision %d: %w", to.Revision, err)
	}
	msg.holders, msg.uncount = 1, free
	if !special {
		msg.holders++
		if old := w.s.latest.Swap(msg); old != nil {
			old.release()
		}
	}
	return msg, nil
}

// last returns the newest message, held, if it is the right one.
func (w *watch) last(to *catalog.View, provisional bool) *prepared {
	last := w.s.latest.Load()
	if last != nil && last.from == w.sent && last.to == to && last.provisional == provisional && last.hold() {
		return last
	}
	return nil
}

// estimate returns about how many bytes a message will have, rather too many.
func (w *watch) estimate(to *catalog.View) (n int64) {
	if w.sent != nil {
		for edit := range to.Entries.Diff(&w.sent.Entries, sameEntry) {
			if n += nameBytes; !edit.Remove {
				n += entrySize(edit.Value)
			}
		}
		return n
	}
	for _, entry := range to.Entries.All() {
		n += nameBytes + entrySize(entry)
	}
	return n + int64(len(w.hello.known.digests()))*nameBytes
}

// Sizes of the parts of a message, with names of usual length.
const (
	nameBytes  = 64
	routeBytes = 96
)

func entrySize(e *catalog.Entry) (n int64) {
	for i := range e.Routes {
		n += routeBytes + int64(len(e.Routes[i].Addresses))*nameBytes
	}
	return n
}

func (w *watch) encode(to *catalog.View, provisional bool) (*prepared, error) {
	m := &draft{WatchResponse: pb.WatchResponse{Revision: to.Revision, Open: to.Open, Rule: to.Rule, Provisional: provisional, TakesUnreached: true, TellsAccess: true}}
	if w.drained != 0 {
		m.Drained, m.Revision = true, max(w.drained, to.Revision)
	}
	if w.sent == nil {
		m.first(to, w.hello.known.digests())
	} else {
		m.difference(w.sent, to)
	}
	m.ProtoReflect().SetUnknown(m.puts)
	encoded, err := proto.Marshal(&m.WatchResponse)
	return &prepared{
		from: w.sent, to: to, provisional: provisional, encoded: encoded, revision: m.Revision, entries: m.entries,
	}, err
}

// draft is a message in the making. The field put is encoded already, in puts, and is appended as
// bytes.
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

// first fills in the difference to a view from known digests.
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

// difference fills in the difference between two views.
func (m *draft) difference(from, to *catalog.View) {
	if !to.Gateways.Equal(from.Gateways) {
		m.Gateways = wire.Gateways(to.Gateways)
	}
	for edit := range to.Entries.Diff(&from.Entries, sameEntry) {
		if edit.Remove {
			m.remove(edit.App)
		} else {
			m.put(edit.Value)
		}
	}
}

// sameEntry tells whether two entries are equal for the client. Most entries of two views are one
// and the same; after a change elsewhere in a selection they are equal copies.
func sameEntry(a, b *catalog.Entry) bool {
	return a == b || a.SameRoutes(b) && (a.Rule.Same(b.Rule) || a.Rule.String() == b.Rule.String())
}

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

// prepared is a message from one view to another, encoded. Streams of the same app,
// and all of apps without a selection, go from the same view to the same view: what
// was encoded for one is sent to all.
type prepared struct {
	from, to    *catalog.View
	provisional bool
	encoded     []byte
	revision    uint64
	entries     int

	holders int32 // who send it, and Server.latest; see hold
	mu      sync.Mutex
	uncount func() // gives back what it counts in Server.messages
}

// hold keeps a message's bytes counted until release. It returns false if nobody has held it
// any more.
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

// uncounted is how long a message may be that does not count in Server.messages. gRPC holds
// as much of each stream before it waits for the client.
const uncountedBytes = 64 << 10

// message is what brings the client from the view that it has to another. The caller holds it.
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
			return nil, status.Error(codes.Unavailable, "too many clients are being sent their views; come back")
		}
		// Others may have made it meanwhile.
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

// last is the message that was made last, held, if it is the one that is wanted.
func (w *watch) last(to *catalog.View, provisional bool) *prepared {
	last := w.s.latest.Load()
	if last != nil && last.from == w.sent && last.to == to && last.provisional == provisional && last.hold() {
		return last
	}
	return nil
}

// estimate is about how many bytes a message will have, and rather too many.
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

// What the parts of a message take, with names of usual length.
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
	m := &draft{WatchResponse: pb.WatchResponse{Revision: to.Revision, Open: to.Open, Rule: to.Rule, Provisional: provisional, TakesUnreached: true}}
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
	for edit := range to.Entries.Diff(&from.Entries, sameEntry) {
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
func sameEntry(a, b *catalog.Entry) bool {
	return a == b || a.SameRoutes(b) && (a.Rule == b.Rule || a.Rule.String() == b.Rule.String())
}

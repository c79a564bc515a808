package nameresolution

import (
	"errors"
	"fmt"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// mirror is a view as the service sent it, with the digests by which it is resumed.
// It is immutable.
type mirror struct {
	view    *catalog.View
	digests catalog.Table[uint64]
	// provisional says that the service may not have known everything when it was sent, and
	// that it is the first: there was nothing before that it could lack.
	provisional bool
	access      *access // who may call the app; nil while that is not known
}

// known is what a hello says of the mirror.
func (m *mirror) known() []*pb.Known {
	if m == nil {
		return nil
	}
	known := make([]*pb.Known, 0, m.digests.Len())
	for app, digest := range m.digests.All() {
		known = append(known, &pb.Known{App: wire.App(app), Digest: digest})
	}
	return known
}

// knownBytes is what an entry of a hello takes beside its name.
const knownBytes = 24

// fits tells whether a hello may name all that the mirror has.
func (m *mirror) fits(most, bytes int) bool {
	if m == nil || m.digests.Len() > most {
		return m == nil
	}
	for app := range m.digests.All() {
		bytes -= knownBytes + len(app.Namespace) + len(app.ID)
	}
	return bytes >= 0
}

// first tells whether what is sent now makes up the first view, or goes on with one that
// is provisional.
func (m *mirror) first() bool { return m == nil || m.provisional }

// provisionalFor is how long a provisional view is one that a service may take back. A
// service that was away for longer may have begun anew, and know less than it did.
const provisionalFor = 3 * time.Second

// final is the mirror as one that stands until a service knows better.
func (m *mirror) final() *mirror {
	if m == nil || !m.provisional {
		return m
	}
	next := *m
	next.provisional = false
	return &next
}

func (m *mirror) revision() uint64 {
	if m == nil {
		return 0
	}
	return m.view.Revision
}

// with is the mirror after a change. Where an entry can't be read, what stood for its
// app stays; the error names it. Its digest goes, so that it is sent anew on the next
// stream.
func (m *mirror) with(change *pb.WatchResponse) (*mirror, error) {
	provisional := change.Provisional && m.first()
	if m == nil {
		m = &mirror{view: &catalog.View{}}
	}
	var errs []error
	entries := make([]catalog.Edit[*catalog.Entry], 0, len(change.Put)+len(change.Removed))
	digests := make([]catalog.Edit[uint64], 0, len(change.Put)+len(change.Removed))
	for _, p := range change.Put {
		entry, err := wire.ParseEntry(p)
		if err != nil {
			errs = append(errs, err)
			digests = append(digests, catalog.Edit[uint64]{App: wire.AppOf(p.GetApp()), Remove: true})
			continue
		}
		if old, ok := m.view.Entries.Get(entry.Name()); ok && old.App == entry.App {
			entry.Follow(old.Plan)
		}
		entries = append(entries, catalog.Edit[*catalog.Entry]{App: entry.Name(), Value: entry})
		digests = append(digests, catalog.Edit[uint64]{App: entry.Name(), Value: p.GetDigest()})
	}
	for _, app := range change.Removed {
		entries = append(entries, catalog.Edit[*catalog.Entry]{App: wire.AppOf(app), Remove: true})
		digests = append(digests, catalog.Edit[uint64]{App: wire.AppOf(app), Remove: true})
	}
	view := &catalog.View{
		Revision: max(m.view.Revision, change.Revision), Open: change.Open, Rule: change.Rule,
		Entries: m.view.Entries.With(entries...), Gateways: m.view.Gateways,
	}
	if change.Gateways != nil {
		if gateways, err := wire.ParseGateways(change.Gateways); err == nil {
			view.Gateways = gateways
		} else {
			errs = append(errs, fmt.Errorf("gateways: %w", err))
		}
	}
	if view.Gateways == nil {
		view.Gateways = &catalog.Gateways{}
	}
	return &mirror{view, m.digests.With(digests...), provisional, m.access}, errors.Join(errs...)
}

// message is the whole mirror as one change from nothing.
func (m *mirror) message() *pb.WatchResponse {
	all := &pb.WatchResponse{
		Revision: m.view.Revision, Open: m.view.Open, Rule: m.view.Rule, Gateways: wire.Gateways(m.view.Gateways),
		Provisional: m.provisional, Access: m.access.message(),
		Put: make([]*pb.ViewEntry, 0, m.view.Entries.Len()),
	}
	for app, entry := range m.view.Entries.All() {
		p := wire.Entry(entry)
		p.Digest, _ = m.digests.Get(app)
		all.Put = append(all.Put, p)
	}
	return all
}

package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"
	"unique"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// maxInstanceID is the longest ID of an instance. An unverified one gets a prefix of at most
// maxSource bytes.
const (
	maxInstanceID = 256
	maxSource     = 64
)

// hello is a client's first message, checked.
type hello struct {
	app      catalog.App
	instance *catalog.Instance // nil to watch without being one
	revision uint64
	known    *knownEntries // until the first message is sent
	keeps    bool          // it has a view that is not provisional

	unwell string // why the app of its instance can't take calls

	guards bool   // it wants to know who may call its app
	taps   bool   // it can be tapped
	access []byte // digest of what it knows of that

	others     bool      // it knows another replica
	turnedAway time.Time // when a replica turned it away last; zero for none

	version, runtime string // for operators
	plainText        bool
	anchors          []string // fingerprints of its roots
}

// parseHello checks a first message. Its errors are those of gRPC.
func parseHello(req *firstRequest, cfg *Config) (*hello, error) {
	m := req.GetHello()
	if m == nil {
		if req.GetDrain() != nil {
			return nil, status.Error(codes.FailedPrecondition, "drain before hello: the first message must be a hello")
		}
		return nil, status.Error(codes.InvalidArgument, "the first message is neither hello nor drain; is the client newer than the service?")
	}
	app, err := wire.ParseApp(m.App)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "hello: %v", err)
	}
	h := &hello{
		app: app, revision: m.Revision, keeps: m.Revision > 0 && !m.Provisional, known: req.known, version: shown(m.Version), runtime: shown(m.Runtime), plainText: m.PlainText,
		guards: m.Guards, taps: m.Taps, access: m.Access, anchors: fingerprints(m.TrustAnchors),
	}
	if h.others = m.HasOthers; m.TurnedAwayMs > 0 {
		ago := min(m.TurnedAwayMs, uint64(TurnAwayEvery.Milliseconds()))
		h.turnedAway = time.Now().Add(-time.Duration(ago) * time.Millisecond)
	}
	if m.Instance != nil {
		if h.instance, err = parseInstance(app, m.Instance, cfg.Destinations); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "hello: %v", err)
		}
		if m.Instance.Draining {
			h.unwell = catalog.Printable(m.Instance.Unwell[:min(len(m.Instance.Unwell), maxWhy)])
		}
	}
	return h, nil
}

// maxVersion bounds the text of a version.
const maxVersion = 64

// shown is a text of a client as operators may see it.
func shown(s string) string { return catalog.Printable(s[:min(len(s), maxVersion)]) }

// maxAnchors bounds the roots of a sidecar.
const maxAnchors = 64

// fingerprints are those of a client's roots, in hexadecimal.
func fingerprints(all [][]byte) (texts []string) {
	for _, sum := range all[:min(len(all), maxAnchors)] {
		if len(sum) == sha256.Size {
			texts = append(texts, hex.EncodeToString(sum))
		}
	}
	return texts
}

func parseInstance(app catalog.App, m *pb.Instance, rules *destination.Rules) (*catalog.Instance, error) {
	address, err := netip.ParseAddrPort(m.Address)
	if err != nil {
		return nil, fmt.Errorf("instance address %q: want ip:port, such as \"10.0.0.1:50002\"", m.Address)
	}
	address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	i := &catalog.Instance{ID: m.Id, App: app, Address: address, Draining: m.Draining, Zone: m.Zone, Version: unique.Make(m.Version).Value(), Calls: catalog.Calls(m.Calls)}
	if len(i.ID) > maxInstanceID {
		return nil, fmt.Errorf("instance id of %d bytes; want 1 to %d", len(i.ID), maxInstanceID)
	}
	return i, checkInstance(i, rules)
}

// checkInstance checks an instance, whichever app it belongs to.
func checkInstance(i *catalog.Instance, rules *destination.Rules) error {
	if err := i.App.Check(); err != nil {
		return err
	}
	if i.ID == "" || len(i.ID) > maxInstanceID+maxSource {
		return fmt.Errorf("instance id of %d bytes; want 1 to %d", len(i.ID), maxInstanceID)
	}
	if err := catalog.CheckZone(i.Zone); err != nil {
		return fmt.Errorf("instance: %w", err)
	}
	if err := catalog.CheckVersion(i.Version); err != nil && i.Version != "" {
		return fmt.Errorf("instance: the version %w", err)
	}
	if err := i.Calls.Check(); err != nil {
		return fmt.Errorf("instance: calls: %w", err)
	}
	if err := rules.Instance(i.Address); err != nil {
		return fmt.Errorf("instance %w", err)
	}
	return nil
}

package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxRoutes bounds the routes of an entry that comes in: a selection's are bounded by
// catalog.MaxRoutes, those of an endpoint without routes by the number of clusters.
const maxRoutes = 10_000

// The fields of the messages that AppendPut writes; see services.proto.
const (
	responsePut protowire.Number = 3

	entryApp    protowire.Number = 1
	entryRule   protowire.Number = 2
	entryRoutes protowire.Number = 3
	entryDigest protowire.Number = 4
	entryHash   protowire.Number = 5
	entryTarget protowire.Number = 6
	entryTakes  protowire.Number = 7

	takeRoute   protowire.Number = 1
	takeHeader  protowire.Number = 2
	headerName  protowire.Number = 1
	headerValue protowire.Number = 2

	appNamespace protowire.Number = 1
	appID        protowire.Number = 2
)

// Entry is the message of an entry, with its digest.
func Entry(e *catalog.Entry) *pb.ViewEntry {
	m := &pb.ViewEntry{}
	if err := proto.Unmarshal(appendEntry(nil, e), m); err != nil {
		panic(fmt.Sprintf("entry of %s is no message: %v", e.App, err)) // appendEntry is wrong
	}
	return m
}

// ParseEntry reads an entry.
func ParseEntry(m *pb.ViewEntry) (*catalog.Entry, error) {
	app, err := ParseApp(m.GetApp())
	if err != nil {
		return nil, err
	}
	target, own := app, catalog.Own{}
	if m.Target != nil {
		own.Name = app
		if target, err = ParseApp(m.Target); err != nil {
			return nil, fmt.Errorf("entry of %s: %w", app, err)
		}
	}
	if len(m.GetRoutes()) > maxRoutes {
		return nil, fmt.Errorf("entry of %s has %d routes; at most %d are taken", app, len(m.GetRoutes()), maxRoutes)
	}
	routes := make([]catalog.Route, len(m.GetRoutes()))
	for i, r := range m.GetRoutes() {
		if routes[i], err = parseRoute(target, r); err != nil {
			return nil, fmt.Errorf("entry of %s, route %d: %w", app, i, err)
		}
	}
	e := catalog.NewEntry(target, catalog.TextRule(m.GetRule()), routes)
	if own.Hash, err = catalog.ParseHash(m.GetHash()); err != nil {
		return nil, fmt.Errorf("entry of %s: %w", app, err)
	}
	if own.Takes, err = parseTakes(target, m.GetTakes()); err != nil {
		return nil, fmt.Errorf("entry of %s: %w", app, err)
	}
	if own.Name != (catalog.App{}) || own.Hash != (catalog.Hash{}) || own.Takes != nil {
		e.Own = &own
	}
	return e, nil
}

// AppendPut appends an entry as a WatchResponse carries it in its field put, encoded.
// It takes a third of the time of proto.Marshal and makes no garbage (BenchmarkPut): when an
// instance changes, this is done once for every caller of its app.
func AppendPut(b []byte, e *catalog.Entry) []byte {
	var room [1024]byte
	m := appendEntry(room[:0], e)
	return appendMessage(b, responsePut, m)
}

func appendEntry(m []byte, e *catalog.Entry) []byte {
	var room [512]byte
	name := e.Name()
	m = appendMessage(m, entryApp, appendApp(room[:0], name))
	m = appendText(m, entryRule, e.Rule.String())
	for i := range e.Routes {
		m = appendMessage(m, entryRoutes, appendRoute(room[:0], &e.Routes[i]))
	}
	m = appendText(m, entryHash, e.Hash().String())
	if name != e.App {
		m = appendMessage(m, entryTarget, appendApp(room[:0], e.App))
	}
	for i := range e.Takes() {
		m = appendMessage(m, entryTakes, appendTake(room[:0], &e.Takes()[i]))
	}
	return protowire.AppendFixed64(protowire.AppendTag(m, entryDigest, protowire.Fixed64Type), xxhash.Sum64(m))
}

func appendApp(m []byte, app catalog.App) []byte {
	return appendText(appendText(m, appNamespace, app.Namespace), appID, app.ID)
}

// Digest is the digest of an entry's message: over the fields before it, as AppendPut writes them.
// A sidecar that comes back names its entries by it, and is sent only what differs. A field that a
// later version adds leaves it as it is where the field is not set.
func Digest(e *catalog.Entry) uint64 {
	var room [1024]byte
	m := appendEntry(room[:0], e)
	return binary.LittleEndian.Uint64(m[len(m)-8:])
}

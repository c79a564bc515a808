package wire

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Digest is the digest of an entry's message. It is over an encoding of its own,
// because that of protobuf may change between versions and this must not: a sidecar
// that comes back to a newer service should be sent only what differs.
func Digest(e *catalog.Entry) uint64 { return digest(e, e.Rule.String()) }

func digest(e *catalog.Entry, rule string) uint64 {
	var room [512]byte
	b := room[:0]
	b = text(b, e.App.Namespace)
	b = text(b, e.App.ID)
	b = text(b, rule)
	b = binary.AppendUvarint(b, uint64(len(e.Routes)))
	for i := range e.Routes {
		b = digestRoute(b, &e.Routes[i])
	}
	return xxhash.Sum64(b)
}

// These mark, beside the bit of gateway, a route that has shards, draining, ramp or instances, one
// of a damped cluster, and one that has zones. One that has none is encoded as it was before there
// were any.
const (
	more     = 2
	isDamped = 4
	zoned    = 8
)

func digestRoute(b []byte, r *catalog.Route) []byte {
	b = text(b, r.Cluster)
	b = binary.AppendUvarint(b, uint64(r.Priority))
	b = binary.AppendUvarint(b, uint64(r.Weight))
	shards := r.Shards()
	flags := bit(r.Gateway)
	if shards > 0 || r.Draining > 0 || r.Ramp > 0 || len(r.Instances) > 0 {
		flags |= more
	}
	if r.Zones != nil {
		flags |= zoned
	}
	state, damped := state(r.State)
	flags |= isDamped * bit(damped)
	b = append(b, byte(state), bit(r.Local), flags)
	b = binary.AppendUvarint(b, uint64(r.Ready))
	if flags&more != 0 {
		b = binary.AppendUvarint(b, uint64(shards))
		b = binary.AppendUvarint(b, uint64(r.Draining))
		b = append(b, r.Ramp)
		b = binary.AppendUvarint(b, uint64(len(r.Instances)))
		for _, token := range r.Instances {
			b = binary.LittleEndian.AppendUint32(b, token)
		}
	}
	if flags&zoned != 0 {
		names, of := r.Zones.Parts()
		b = binary.AppendUvarint(b, uint64(len(names)))
		for _, name := range names {
			b = text(b, name)
		}
		b = append(binary.AppendUvarint(b, uint64(len(of))), of...)
	}
	if shards > 0 {
		return text(b, r.GatewayAddress())
	}
	b = binary.AppendUvarint(b, uint64(len(r.Addresses)))
	for _, a := range r.Addresses {
		b = text(b, a)
	}
	return b
}

func text(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

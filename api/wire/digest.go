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
		r := &e.Routes[i]
		b = text(b, r.Cluster)
		b = binary.AppendUvarint(b, uint64(r.Priority))
		b = binary.AppendUvarint(b, uint64(r.Weight))
		b = append(b, byte(state(r.State)), bit(r.Local), bit(r.Gateway))
		b = binary.AppendUvarint(b, uint64(r.Ready))
		b = binary.AppendUvarint(b, uint64(len(r.Addresses)))
		for _, a := range r.Addresses {
			b = text(b, a)
		}
	}
	return xxhash.Sum64(b)
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

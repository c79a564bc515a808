package xds

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// encoded is a response in its wire format.
type encoded []byte

// Buffers is that of [rawgrpc.Encoded].
func (e encoded) Buffers() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(e)} }

// Fields of the messages in envoy/service/discovery/v3/discovery.proto.
const (
	responseVersion  = 1
	responseResource = 2
	responseType     = 4
	responseNonce    = 5
	deltaRemoved     = 6

	resourceVersion = 1
	resourceAny     = 2
	resourceNamed   = 3

	anyType  = 1
	anyValue = 2
)

// resource is a resource for one type, in the form in which both kinds of responses carry it. It
// is immutable.
type resource struct {
	name    string
	version string // says what is in it, the same in every replica
	any     []byte // google.protobuf.Any
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// response is what one message says about the resources of a type.
type response struct {
	url     string
	nonce   string
	version string // of the whole, for operators
	put     []*resource
	removed []string // names; delta only
}

// state encodes a DiscoveryResponse.
func (r *response) state() encoded {
	size := 64 + len(r.url) + len(r.nonce) + len(r.version)
	for _, p := range r.put {
		size += len(p.any) + 8
	}
	b := appendString(make([]byte, 0, size), responseVersion, r.version)
	for _, p := range r.put {
		b = appendBytes(b, responseResource, p.any)
	}
	return appendString(appendString(b, responseType, r.url), responseNonce, r.nonce)
}

// delta encodes a DeltaDiscoveryResponse.
func (r *response) delta() encoded {
	size := 64 + len(r.url) + len(r.nonce) + len(r.version)
	for _, p := range r.put {
		size += len(p.any) + len(p.name) + len(p.version) + 16
	}
	for _, name := range r.removed {
		size += len(name) + 8
	}
	b := appendString(make([]byte, 0, size), responseVersion, r.version)
	for _, p := range r.put {
		b = protowire.AppendTag(b, responseResource, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(stringSize(p.version)+stringSize(p.name)+1+protowire.SizeBytes(len(p.any))))
		b = appendString(b, resourceVersion, p.version)
		b = appendBytes(b, resourceAny, p.any)
		b = appendString(b, resourceNamed, p.name)
	}
	b = appendString(appendString(b, responseType, r.url), responseNonce, r.nonce)
	for _, name := range r.removed {
		b = appendString(b, deltaRemoved, name)
	}
	return b
}

// stringSize is what [appendString] adds for a field below 16.
func stringSize(s string) int { return 1 + protowire.SizeBytes(len(s)) }

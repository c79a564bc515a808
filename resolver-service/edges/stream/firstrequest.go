package stream

import (
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/rawgrpc"
)

// firstRequest is a client's first message, decoded. The known entries of a hello are separate:
// as messages they would take ten times as much memory.
type firstRequest struct {
	*pb.WatchRequest
	known *knownEntries // of a hello; nil for none
}

// The fields of the messages that are decoded here.
const (
	fieldHello       = 1 // of WatchRequest
	fieldKnown       = 4 // of Hello
	fieldKnownApp    = 1
	fieldKnownDigest = 2
	fieldNamespace   = 1 // of App
	fieldID          = 2
)

// parseFirstRequest decodes a message. Its errors are those of gRPC.
func parseFirstRequest(raw *rawgrpc.Received, sets *knownSets, client string, maxKnown int) (*firstRequest, error) {
	entries := &entries{max: maxKnown}
	var fields []byte // of the hello, without the known entries
	var isHello bool
	rest, err := split(raw.Bytes, fieldHello, func(hello []byte) error {
		isHello = true
		others, err := split(hello, fieldKnown, entries.add)
		fields = append(fields, others...)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &firstRequest{WatchRequest: &pb.WatchRequest{}}
	lean := proto.UnmarshalOptions{DiscardUnknown: true}
	if err := lean.Unmarshal(rest, r.WatchRequest); err != nil {
		return nil, malformed(err)
	}
	if isHello {
		m := &pb.Hello{}
		if err := lean.Unmarshal(fields, m); err != nil {
			return nil, malformed(err)
		}
		r.Request = &pb.WatchRequest_Hello{Hello: m}
	}
	r.known, err = sets.acquire(client, entries)
	return r, err
}

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "the message can't be read: %v", err)
}

// split passes the values of one field to take, and returns the other fields.
func split(m []byte, field protowire.Number, take func([]byte) error) (rest []byte, err error) {
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return nil, malformed(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, m[n:])
		if size < 0 {
			return nil, malformed(protowire.ParseError(size))
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(m[n:])
			if err := take(value); err != nil {
				return nil, err
			}
		} else {
			rest = append(rest, m[:n+size]...)
		}
		m = m[n+size:]
	}
	return rest, nil
}

// entries are the known entries of a hello while they are decoded.
type entries struct {
	max       int
	digests   map[catalog.App]uint64
	bytes     int64
	namespace string // of the entry before; most have the same
	count     int
}

// entryBytes is the memory of a known entry besides its name.
const entryBytes = 96

// add decodes one message Known.
func (e *entries) add(m []byte) error {
	if e.count++; e.count > e.max {
		return status.Errorf(codes.ResourceExhausted, "hello has too many known entries; at most %d are allowed; reconnect without any", e.max)
	}
	var digest uint64
	var namespace, id []byte
	var named bool
	rest, err := split(m, fieldKnownApp, func(app []byte) (err error) {
		named = true
		namespace, id, err = nameIn(app)
		return err
	})
	if err != nil {
		return err
	}
	if !named {
		return status.Errorf(codes.InvalidArgument, "hello: known[%d] names no app", e.count-1)
	}
	// The rest is the digest in most cases.
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if number == fieldKnownDigest && kind == protowire.Fixed64Type {
			digest, _ = protowire.ConsumeFixed64(rest[n:])
		}
		rest = rest[n+protowire.ConsumeFieldValue(number, kind, rest[n:]):]
	}
	return e.put(namespace, id, digest)
}

// put adds an entry. It does not check the app: an entry that no view has is answered with its
// removal.
func (e *entries) put(namespace, id []byte, digest uint64) error {
	if !utf8.Valid(namespace) || !utf8.Valid(id) {
		return status.Errorf(codes.InvalidArgument, "hello: known[%d] is no text", e.count-1)
	}
	if e.namespace != string(namespace) {
		e.namespace = string(namespace)
		e.bytes += int64(len(namespace))
	}
	if e.digests == nil {
		e.digests = make(map[catalog.App]uint64)
	}
	e.digests[catalog.App{Namespace: e.namespace, ID: string(id)}] = digest
	e.bytes += entryBytes + int64(len(id))
	return nil
}

// nameIn decodes a message App.
func nameIn(m []byte) (namespace, id []byte, err error) {
	rest, err := split(m, fieldNamespace, func(text []byte) error { namespace = text; return nil })
	if err == nil {
		_, err = split(rest, fieldID, func(text []byte) error { id = text; return nil })
	}
	return namespace, id, err
}

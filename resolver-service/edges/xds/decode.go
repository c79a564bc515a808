package xds

import (
	"cmp"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Bounds of a request, in bytes where nothing else is said.
const (
	maxRequest = 8 << 20
	maxNames   = 50_000 // names of a request, and of one type that a stream follows
	maxName    = 255    // those of apps are shorter
	maxText    = 1024   // type URLs, nonces and versions
	maxNode    = 256 << 10
)

// part is what a field of a request means.
type part int

const (
	ignored part = iota
	inVersion
	inNode
	inNames
	inURL
	inNonce
	inProblem
	inSubscribe
	inUnsubscribe
	inKnown
)

// The fields of DiscoveryRequest and DeltaDiscoveryRequest, by number.
var (
	stateParts = []part{1: inVersion, 2: inNode, 3: inNames, 4: inURL, 5: inNonce, 6: inProblem}
	deltaParts = []part{1: inNode, 2: inURL, 3: inSubscribe, 4: inUnsubscribe, 5: inKnown, 6: inNonce, 7: inProblem}
)

// decode reads a request by its wire format, so that no part of it grows beyond its bound. The node
// is not decoded. Errors are those of gRPC.
func decode(raw []byte, delta bool) (r *request, node []byte, err error) {
	parts := stateParts
	if delta {
		parts = deltaParts
	}
	r = &request{}
	names := 0
	err = eachField(raw, func(number protowire.Number, value []byte) (err error) {
		p := ignored
		if int(number) < len(parts) {
			p = parts[number]
		}
		switch p {
		case inNames, inSubscribe, inUnsubscribe, inKnown:
			if names++; names > maxNames {
				return exceeded("a request has more than %d names of resources; ask for all by *", maxNames)
			}
		}
		switch p {
		case inVersion:
			r.version, err = text("version_info", value, maxText)
		case inNode:
			if len(value) > maxNode {
				return exceeded("the node has %d bytes; at most %d are allowed; shorten its metadata", len(value), maxNode)
			}
			node = value
		case inURL:
			r.url, err = text("type_url", value, maxText)
		case inNonce:
			r.nonce, err = text("response_nonce", value, maxText)
		case inProblem:
			r.problem, err = problemIn(value)
		case inNames:
			r.names, err = appendName(r.names, value)
		case inSubscribe:
			r.subscribe, err = appendName(r.subscribe, value)
		case inUnsubscribe:
			r.unsubscribe, err = appendName(r.unsubscribe, value)
		case inKnown:
			err = r.addKnown(value)
		}
		return err
	})
	return r, node, err
}

func exceeded(format string, a ...any) error {
	return status.Errorf(codes.ResourceExhausted, "xds: "+format, a...)
}

// eachField passes on the fields of a message that have bytes.
func eachField(m []byte, take func(number protowire.Number, value []byte) error) error {
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return malformed(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, m[n:])
		if size < 0 {
			return malformed(protowire.ParseError(size))
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(m[n:])
			if err := take(number, value); err != nil {
				return err
			}
		}
		m = m[n+size:]
	}
	return nil
}

func malformed(err error) error {
	return status.Errorf(codes.InvalidArgument, "xds: the request can't be read: %v", err)
}

func text(what string, value []byte, most int) (string, error) {
	switch {
	case len(value) > most:
		return "", exceeded("%s has %d bytes; at most %d are allowed", what, len(value), most)
	case !utf8.Valid(value):
		return "", status.Errorf(codes.InvalidArgument, "xds: %s is not UTF-8", what)
	}
	return string(value), nil
}

func appendName(all []string, value []byte) ([]string, error) {
	name, err := text("a resource name", value, maxName)
	return append(all, name), err
}

// addKnown takes an entry of initial_resource_versions.
func (r *request) addKnown(entry []byte) error {
	var name, version string
	err := eachField(entry, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case 1:
			name, err = text("a resource name", value, maxName)
		case 2:
			version, err = text("a resource version", value, maxName)
		}
		return err
	})
	if r.known == nil {
		r.known = map[string]string{}
	}
	r.known[name] = version
	return err
}

// problemIn is the message of a google.rpc.Status.
func problemIn(m []byte) (problem string, err error) {
	err = eachField(m, func(number protowire.Number, value []byte) error {
		if number == 2 {
			problem = short(string(value[:min(len(value), 2*maxWords)]))
		}
		return nil
	})
	return cmp.Or(problem, "it gives no reason"), err
}

func decodeNode(raw []byte) (*corev3.Node, error) {
	n := &corev3.Node{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, n); err != nil {
		return nil, malformed(err)
	}
	return n, nil
}

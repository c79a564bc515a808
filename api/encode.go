package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// ToProto is the message of an object, with defaults left out.
func ToProto(obj catalog.Object) proto.Message {
	switch o := obj.(type) {
	case *catalog.ActorType:
		return actorTypeToProto(o)
	case *catalog.AppEndpoints:
		return endpointsToProto(o)
	case *catalog.AppExport:
		spec := &v1alpha1.AppExportSpec{Allow: wire.Allow(o.Allow)}
		return &v1alpha1.AppExport{ApiVersion: catalog.Version, Kind: string(catalog.KindAppExport), Metadata: appMetadata(o.App), Spec: spec}
	case *catalog.AppInstance:
		return instanceToProto(o)
	case *catalog.Cluster:
		spec := &v1alpha1.ClusterSpec{Network: o.Network, Tunnel: o.Tunnel, Guest: guestToProto(o.Guest)}
		introductionsToProto(o, spec)
		for _, address := range o.Gateways {
			spec.Gateways = append(spec.Gateways, &v1alpha1.Gateway{Address: address})
		}
		for _, g := range o.AppGateways {
			spec.Gateways = append(spec.Gateways, &v1alpha1.Gateway{Address: g.Address, App: g.App.ID, Namespace: g.App.Namespace})
		}
		for _, p := range o.NetworkRanges {
			spec.NetworkRanges = append(spec.NetworkRanges, p.String())
		}
		if o.StaleAfter != 0 && o.StaleAfter != catalog.DefaultStaleAfter {
			spec.StaleAfter = o.StaleAfter.String()
		}
		if o.RampUp != catalog.DefaultRampUp {
			spec.RampUp = o.RampUp.String()
		}
		if o.Trust != (catalog.Trust{}) {
			spec.Trust = &v1alpha1.Trust{Domain: o.Trust.Domain, Roots: o.Trust.Roots, AppDomain: o.Trust.AppDomain, Rotation: o.Trust.Rotation}
		}
		return &v1alpha1.Cluster{ApiVersion: catalog.Version, Kind: string(catalog.KindCluster), Metadata: &v1alpha1.Metadata{Name: o.Name}, Spec: spec}
	}
	return nil
}

func appMetadata(a catalog.App) *v1alpha1.Metadata {
	return &v1alpha1.Metadata{Namespace: a.Namespace, Name: a.ID}
}

// EncodeJSON is an object as a key-value store holds it: compact, fields in the
// order of their definition, defaults left out, the same bytes for the same object.
func EncodeJSON(obj catalog.Object) []byte { return EncodeJSONAt(obj, "") }

// EncodeJSONAt is [EncodeJSON] with the object's revision in its metadata, for a reader that will
// write the object again. Stores hold what EncodeJSON makes.
func EncodeJSONAt(obj catalog.Object, revision string) []byte {
	return appendJSON(nil, at(obj, revision))
}

func appendJSON(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	for i, field := range shown(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, field.JSONName()...)
		b = append(b, `":`...)
		b = appendJSONValue(b, m.Get(field), field)
	}
	return append(b, '}')
}

func appendJSONValue(b []byte, value protoreflect.Value, field protoreflect.FieldDescriptor) []byte {
	switch {
	case field.IsList():
		b = append(b, '[')
		for i := range value.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if field.Kind() == protoreflect.MessageKind {
				b = appendJSON(b, value.List().Get(i).Message())
			} else {
				b = appendQuoted(b, value.List().Get(i).String())
			}
		}
		return append(b, ']')
	case field.Kind() == protoreflect.MessageKind:
		return appendJSON(b, value.Message())
	case field.Kind() == protoreflect.Uint32Kind:
		return strconv.AppendUint(b, value.Uint(), 10)
	case field.Kind() == protoreflect.BoolKind:
		return strconv.AppendBool(b, value.Bool())
	case writesNumber(field, value.String()):
		return append(b, value.String()...)
	default:
		return appendQuoted(b, value.String())
	}
}

// appendQuoted writes a string as JSON, in which every YAML reader sees the same string:
// what YAML does not take as it is, or takes for the end of a line, is escaped.
func appendQuoted(b []byte, s string) []byte {
	if !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return append(append(append(b, '"'), s...), '"')
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return append(b, `""`...) // not reached: strings can be encoded
	}
	for _, c := range string(bytes.TrimRight(buf.Bytes(), "\n")) {
		if unprintable(c) {
			b = fmt.Appendf(b, `\u%04x`, c)
		} else {
			b = utf8.AppendRune(b, c)
		}
	}
	return b
}

// unprintable tells whether YAML takes a character only where it is escaped (YAML 1.2.2,
// 5.1), or reads it as the end of a line or of a mark, of those that
// encoding/json leaves as they are.
func unprintable(c rune) bool {
	return c >= 0x7f && c <= 0x9f || c == '\u2028' || c == '\u2029' || c == '\ufeff' || c == '\ufffe' || c == '\uffff'
}

// shown are the fields that are written: those that are set, and a spec's own list,
// which says more empty than absent.
func shown(m protoreflect.Message) []protoreflect.FieldDescriptor {
	var all []protoreflect.FieldDescriptor
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); m.Has(field) || alwaysShown(field) {
			all = append(all, field)
		}
	}
	return all
}

func alwaysShown(field protoreflect.FieldDescriptor) bool {
	return slices.Contains([]protoreflect.Name{"endpoints", "allow"}, field.Name())
}

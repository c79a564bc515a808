package api

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// DecodeJSON reads the object that a key-value store holds under a key. The object's
// kind and metadata must be those of the key. The error is an [Errors], or says that
// the key is not one of Isthmus.
//
// The object's Source has no file, and lines as [EncodeYAML] writes them.
func DecodeJSON(path string, data []byte) (catalog.Object, error) {
	key, err := ParseKeyPath(path)
	if err != nil {
		return nil, err
	}
	obj, errs := decodeJSON(path, key, data)
	if len(errs) > 0 {
		return nil, errs
	}
	return obj, nil
}

func decodeJSON(path string, key catalog.Key, data []byte) (catalog.Object, Errors) {
	r := &report{file: path, key: key}
	if len(data) > MaxObjectBytes {
		r.add(position{}, "", fmt.Sprintf("is %d bytes long; an object has at most %d", len(data), MaxObjectBytes), "split the selection")
		return nil, r.close()
	}
	root, ok := parseJSON(data, r)
	if !ok {
		return nil, r.close()
	}
	obj := decodeObject(root, r, false)
	if r.key != key && (r.key != (catalog.Key{}) || len(r.errors) == 0) {
		what := "the object names no kind and metadata that could be " + key.String()
		if r.key != (catalog.Key{}) {
			what = fmt.Sprintf("the object is %s, but its key is that of %s", r.key, key)
		}
		r.add(root.at, "metadata", what, "write it under its own key with \"isthmus apply\"")
	}
	r.key = key
	if len(r.errors) > 0 {
		return nil, r.close()
	}
	return obj, nil
}

// MaxObjectBytes is how long an object may be as JSON.
const MaxObjectBytes = 4 << 20

// decodeObject reads and checks one object, and sets the report's key as soon as it
// can be told. It returns nil if there is any mistake. written says that the node's
// lines are those of a file that a user wrote.
func decodeObject(root *node, r *report, written bool) catalog.Object {
	r.key = catalog.Key{}
	if root.kind != mapNode {
		r.add(root.at, "", "is "+root.kind.String()+" where an object is wanted", "begin with apiVersion, kind, metadata and spec")
		return nil
	}
	m := messageFor(root, r)
	if m == nil {
		return nil
	}
	r.key = keyOf(root)
	w := walker{report: r}
	w.message(m.ProtoReflect(), root)
	if r.full() {
		return nil
	}
	v := validator{report: r, root: root, written: written}
	obj := v.object(m)
	if len(r.errors) > 0 {
		return nil
	}
	return obj
}

// ofService is what to do with a configuration of the service that is taken for an object.
func ofService(root *node) string {
	if root.field("cluster") == nil && root.field("listen") == nil && root.field("identity") == nil {
		return ""
	}
	return "; the configuration of the service is no object: \"isthmus serve --check -c FILE\" checks it"
}

// messageFor checks apiVersion and kind, and returns an empty message of the kind.
func messageFor(root *node, r *report) proto.Message {
	missing := root.field("kind") == nil
	for _, name := range []string{"apiVersion", "kind"} {
		if n := root.field(name); n == nil {
			r.add(root.at, name, "is missing", "begin with \"apiVersion: "+catalog.Version+"\" and \"kind: …\", one of "+kindList()+ofService(root))
			if name == "apiVersion" && missing {
				return nil // one error is enough for what is no object at all
			}
		}
	}
	version := root.field("apiVersion")
	if version != nil && version.kind == stringNode && version.text != catalog.Version {
		r.add(version.at, "apiVersion", fmt.Sprintf("%q is not known here", shorten(version.text)), "write "+catalog.Version)
	}
	kind := root.field("kind")
	if kind == nil {
		return nil
	}
	m := newMessage(catalog.Kind(kind.text))
	if kind.kind != stringNode || m == nil {
		fix := "write one of " + kindList()
		if name := Nearest(kind.text, kindNames()); name != "" {
			fix = fmt.Sprintf("did you mean %q?", name)
		}
		r.add(kind.at, "kind", fmt.Sprintf("%q is not a kind of object", shorten(kind.text)), fix)
		return nil
	}
	return m
}

// keyOf is the key of an object with a known kind, or zero where its metadata does
// not name one.
func keyOf(root *node) catalog.Key {
	key := catalog.Key{Kind: catalog.Kind(root.field("kind").text)}
	metadata := root.field("metadata")
	if name := metadata.field("name"); name != nil && name.kind == stringNode {
		key.Name = name.text
	}
	if ns := metadata.field("namespace"); ns != nil && ns.kind == stringNode && key.Kind.Namespaced() {
		key.Namespace = ns.text
	}
	if CheckKey(key) != nil {
		return catalog.Key{}
	}
	return key
}

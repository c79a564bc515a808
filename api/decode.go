package api

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
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
	r := &strict.Report{File: path, Key: key}
	if len(data) > MaxObjectBytes {
		r.Add(strict.Position{}, "", fmt.Sprintf("is %d bytes long; an object has at most %d", len(data), MaxObjectBytes), "split the selection")
		return nil, r.Close()
	}
	root, ok := strict.ParseJSON(data, r)
	if !ok {
		return nil, r.Close()
	}
	obj := decodeObject(root, r, false)
	if r.Key != key && (r.Key != (catalog.Key{}) || len(r.Errors) == 0) {
		what := "the object names no kind and metadata that could be " + key.String()
		if r.Key != (catalog.Key{}) {
			what = fmt.Sprintf("the object is %s, but its key is that of %s", r.Key, key)
		}
		r.Add(root.At, "metadata", what, "write it under its own key with \"isthmus apply\"")
	}
	r.Key = key
	if len(r.Errors) > 0 {
		return nil, r.Close()
	}
	return obj, nil
}

// MaxObjectBytes is how long an object may be as JSON.
const MaxObjectBytes = 4 << 20

// decodeObject reads and checks one object, and sets the report's key as soon as it
// can be told. It returns nil if there is any mistake. asWritten says that the node's
// lines are those of a file that a user wrote.
func decodeObject(root *strict.Node, r *strict.Report, asWritten bool) catalog.Object {
	r.Key = catalog.Key{}
	if root.Kind != strict.Map {
		r.Add(root.At, "", "is "+root.Kind.String()+" where an object is wanted", "begin with apiVersion, kind, metadata and spec")
		return nil
	}
	m := messageFor(root, r)
	if m == nil {
		return nil
	}
	r.Key = keyOf(root)
	w := walker{report: r}
	w.message(m.ProtoReflect(), root)
	if r.Full() {
		return nil
	}
	v := validator{written{report: r, root: root, asWritten: asWritten}}
	obj := v.object(m)
	if len(r.Errors) > 0 {
		return nil
	}
	return obj
}

// ofService is what to do with a configuration of the service that is taken for an object.
func ofService(root *strict.Node) string {
	if root.Field("cluster") == nil && root.Field("listen") == nil && root.Field("identity") == nil {
		return ""
	}
	return "; the configuration of the service is no object: \"isthmus serve --check -c FILE\" checks it"
}

// messageFor checks apiVersion and kind, and returns an empty message of the kind.
func messageFor(root *strict.Node, r *strict.Report) proto.Message {
	missing := root.Field("kind") == nil
	for _, name := range []string{"apiVersion", "kind"} {
		if n := root.Field(name); n == nil {
			r.Add(root.At, name, "is missing", "begin with \"apiVersion: "+catalog.Version+"\" and \"kind: …\", one of "+kindList()+ofService(root))
			if name == "apiVersion" && missing {
				return nil // one error is enough for what is no object at all
			}
		}
	}
	version := root.Field("apiVersion")
	if version != nil && version.Kind == strict.String && version.Text != catalog.Version {
		r.Add(version.At, "apiVersion", fmt.Sprintf("%q is not known here", strict.Shorten(version.Text)), "write "+catalog.Version)
	}
	kind := root.Field("kind")
	if kind == nil {
		return nil
	}
	m := newMessage(catalog.Kind(kind.Text))
	if kind.Kind != strict.String || m == nil {
		r.Add(kind.At, "kind", fmt.Sprintf("%q is not a kind of object", strict.Shorten(kind.Text)), strict.Hint(kind.Text, kindNames(), "write one of "+kindList()))
		return nil
	}
	return m
}

// keyOf is the key of an object with a known kind, or zero where its metadata does
// not name one.
func keyOf(root *strict.Node) catalog.Key {
	key := catalog.Key{Kind: catalog.Kind(root.Field("kind").Text)}
	metadata := root.Field("metadata")
	if name := metadata.Field("name"); name != nil && name.Kind == strict.String {
		key.Name = name.Text
	}
	if ns := metadata.Field("namespace"); ns != nil && ns.Kind == strict.String && key.Kind.Namespaced() {
		key.Namespace = ns.Text
	}
	if key.Kind == catalog.KindAppEndpoints {
		app := catalog.FromKubernetes(key.Namespace, key.Name)
		key.Namespace, key.Name = app.Namespace, app.ID
	}
	if CheckKey(key) != nil {
		return catalog.Key{}
	}
	return key
}

package configstore

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Scope is the part of a store that a reader needs. The zero Scope is all of it. That of
// one app is its own AppEndpoints and every Cluster: what a sidecar without a resolver
// service resolves by. A backend reads no more than that, so that the app's credentials
// need no more, and what others change costs the sidecar nothing.
type Scope struct {
	App catalog.App // the zero App: everything
}

// All tells whether the scope is the whole store.
func (s Scope) All() bool { return s.App == (catalog.App{}) }

// Has tells whether an object is in the scope.
func (s Scope) Has(key catalog.Key) bool {
	return s.All() || key.Kind == catalog.KindCluster || key == s.Selection()
}

// Selection is the key of the app's own AppEndpoints.
func (s Scope) Selection() catalog.Key {
	return catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: s.App.Namespace, Name: s.App.ID}
}

// Narrow makes a store whose watchers are told of the scope only, of one that reads
// everything anyway.
func Narrow(s ReadWriter, scope Scope) ReadWriter {
	if scope.All() {
		return s
	}
	return narrowed{s, scope}
}

type narrowed struct {
	ReadWriter
	scope Scope
}

// Watch leaves out objects beyond the scope. A refusal without a key stays: it may be the file with
// the app's selection.
func (n narrowed) Watch(ctx context.Context, from Version, deliver func(Change) error) error {
	return n.ReadWriter.Watch(ctx, from, func(c Change) error {
		in := Change{Full: c.Full, Version: c.Version}
		for _, stored := range c.Objects {
			if n.scope.Has(stored.Object.Key()) {
				in.Objects = append(in.Objects, stored)
			}
		}
		for _, key := range c.Deleted {
			if n.scope.Has(key) {
				in.Deleted = append(in.Deleted, key)
			}
		}
		for _, r := range c.Refused {
			if r.Key == (catalog.Key{}) || n.scope.Has(r.Key) {
				in.Refused = append(in.Refused, r)
			}
		}
		return deliver(in)
	})
}

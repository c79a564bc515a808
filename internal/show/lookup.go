package show

import (
	"errors"
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Lookup names the lookup to explain.
type Lookup struct {
	Cluster string // that the caller runs in; empty: the one that is asked
	Caller  catalog.App
	App     catalog.App
}

// From is the caller as --from has it.
func (l Lookup) From() string {
	if l.Cluster == "" {
		return l.Caller.String()
	}
	return l.Cluster + ":" + l.Caller.String()
}

// ParseLookup reads the two apps of a lookup. "cluster:" stands before a caller in another cluster.
// The callee without a namespace is in the caller's, as daprd takes it.
func ParseLookup(from, name string) (l Lookup, err error) {
	if from == "" {
		return l, errors.New("--from is missing; name the calling app as namespace/app-id")
	}
	if cluster, rest, found := strings.Cut(from, ":"); found {
		l.Cluster, from = cluster, rest
	}
	if l.Caller, err = ParseApp(from); err != nil {
		return l, fmt.Errorf("--from: %w", err)
	}
	if l.App, err = ParseApp(name); errors.Is(err, ErrNoNamespace) {
		l.App = catalog.App{Namespace: l.Caller.Namespace, ID: name}
		err = l.App.Check()
	}
	return l, err
}

// ErrNoNamespace marks an error of an app that is named without its namespace.
var ErrNoNamespace = errors.New("want namespace/app-id or app-id.namespace")

// ParseApp reads an app as people write it: namespace/app-id, or app-id.namespace as daprd takes it.
func ParseApp(s string) (catalog.App, error) {
	namespace, id, found := strings.Cut(s, "/")
	if !found {
		id, namespace, found = strings.Cut(s, ".")
	}
	if !found {
		return catalog.App{}, fmt.Errorf("app %q: %w", s, ErrNoNamespace)
	}
	app := catalog.App{Namespace: namespace, ID: id}
	return app, app.Check()
}

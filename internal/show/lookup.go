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

// ParseLookup reads the two apps of a lookup. The caller is namespace/app-id, with "cluster:"
// before it for one in another cluster. The callee is APP or APP.NAMESPACE, as daprd takes it.
func ParseLookup(from, name string) (l Lookup, err error) {
	if from == "" {
		return l, errors.New("--from is missing; name the calling app as namespace/app-id")
	}
	if cluster, rest, found := strings.Cut(from, ":"); found {
		l.Cluster, from = cluster, rest
	}
	if l.Caller, err = catalog.ParseApp(from); err != nil {
		return l, fmt.Errorf("--from: %w", err)
	}
	if strings.Contains(name, "/") {
		return l, fmt.Errorf("app %q: want APP or APP.NAMESPACE, as daprd takes it", name)
	}
	id, namespace, ok := strings.Cut(name, ".")
	if !ok {
		namespace = l.Caller.Namespace
	}
	l.App = catalog.App{Namespace: namespace, ID: id}
	return l, l.App.Check()
}

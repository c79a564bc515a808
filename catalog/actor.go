package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ActorType says which cluster owns an actor type, and who in other clusters may call its actors.
type ActorType struct {
	Namespace string // of the object, and of the apps that host the type
	Name      string // the object's own
	Type      string
	Owner     string  // a cluster's name
	Allow     []Allow // empty: nobody
	Draining  bool    // the owner takes no new calls from other clusters
	Source    Source
}

// Key names the object.
func (a *ActorType) Key() Key { return Key{KindActorType, a.Namespace, a.Name} }

// Origin is where the object was written.
func (a *ActorType) Origin() Source { return a.Source }

// Actors is the type with its namespace.
func (a *ActorType) Actors() Actors { return Actors{a.Namespace, a.Type} }

// Actors are all actors of one type in a namespace. Dapr's placement keeps namespaces apart.
type Actors struct {
	Namespace string
	Type      string
}

// String is "namespace/type".
func (a Actors) String() string { return a.Namespace + "/" + a.Type }

// actorKey begins the names that actor types have among apps. No app-id has a slash.
const actorKey = "actor/"

// App is the name that the type has among the exports of a cluster, beside those of its apps.
func (a Actors) App() App { return App{a.Namespace, actorKey + a.Type} }

// Actors is the inverse of [Actors.App]; ok is false for an app.
func (a App) Actors() (actors Actors, ok bool) {
	typ, ok := strings.CutPrefix(a.ID, actorKey)
	return Actors{a.Namespace, typ}, ok
}

// ActorEndpoint is one actor type in a selection. It is of the caller's namespace.
type ActorEndpoint struct {
	Type     string
	Clusters []string // that may own it; empty: any
}

// From tells whether a cluster may own the type.
func (e *ActorEndpoint) From(cluster string) bool {
	return len(e.Clusters) == 0 || slices.Contains(e.Clusters, cluster)
}

// Actor is the endpoint for an actor type; nil if the selection does not hold it.
func (s *AppEndpoints) Actor(typ string) *ActorEndpoint {
	for i := range s.Actors {
		if s.Actors[i].Type == typ {
			return &s.Actors[i]
		}
	}
	return nil
}

// Bounds of actor types.
const (
	MaxActorType   = 128 // characters of a name
	MaxActors      = 1000
	workflowActors = "dapr.internal." // Dapr's own, for workflows
)

// CheckActorType checks that a path of Dapr's actor API can carry a type's name.
func CheckActorType(s string) error {
	switch {
	case s == "":
		return errors.New("actor type is empty")
	case len(s) > MaxActorType:
		return fmt.Errorf("actor type %q… is %d characters long; at most %d are taken", s[:MaxActorType], len(s), MaxActorType)
	case strings.HasPrefix(s, workflowActors):
		return fmt.Errorf("actor type %q is one of Dapr's workflows, which stay in their cluster", s)
	case strings.Trim(s, ".") == "":
		return fmt.Errorf("actor type %q has nothing but dots", s)
	}
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_.", c) {
			return fmt.Errorf("actor type %q has %q at position %d; letters, digits and - _ . are taken", s, c, i+1)
		}
	}
	return nil
}

// bridgePrefix and a cluster's name are the app-id of that cluster's bridge for actors.
const bridgePrefix = "isthmus-actors-"

// BridgeApp is the bridge for the actors of a namespace in a cluster. Its app-id is the cluster's
// own, since an app-id that is the caller's would lead to the caller.
func BridgeApp(namespace, cluster string) App { return App{namespace, bridgePrefix + cluster} }

// BridgeCluster is the cluster whose bridge an app is; ok is false for any other app.
func (a App) BridgeCluster() (cluster string, ok bool) {
	cluster, ok = strings.CutPrefix(a.ID, bridgePrefix)
	return cluster, ok && CheckCluster(cluster) == nil
}

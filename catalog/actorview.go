package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// ActorView is everything that the bridge of one namespace has to know: immutable, complete, with a
// revision.
type ActorView struct {
	Namespace string
	Cluster   string // this one
	Revision  uint64
	Domains   []string      // trust domains whose apps are this cluster's
	Imports   []ActorImport // by type; those that apps of the namespace select
	Owned     []OwnedActors // by type
	Clusters  []ActorCluster
}

// ActorImport is an actor type that apps of the namespace select.
type ActorImport struct {
	Type     string
	Owner    string   // a cluster; empty where none is known
	Problem  string   // why nothing may be bridged; empty where it may
	Stale    bool     // the owner's lease has run out
	Draining bool     // the owner takes no new calls
	Callers  []string // app-ids of the namespace, sorted: their selection holds the type from that owner
	Allow    []Allow  // whom of this cluster the owner allows
}

// OwnedActors is an actor type that this cluster owns.
type OwnedActors struct {
	Type     string
	Problem  string
	Draining bool
	Allow    []Allow
}

// ActorCluster is another cluster, whose bridge may call this one's.
type ActorCluster struct {
	Name   string
	Domain string // trust domain of its apps; empty: any
}

// Import has the facts about a type that apps of the namespace select; nil if none does.
func (v *ActorView) Import(typ string) *ActorImport {
	at, ok := slices.BinarySearchFunc(v.Imports, typ, func(i ActorImport, typ string) int { return strings.Compare(i.Type, typ) })
	if !ok {
		return nil
	}
	return &v.Imports[at]
}

// Owns has the facts about a type that this cluster owns; nil if it does not.
func (v *ActorView) Owns(typ string) *OwnedActors {
	at, ok := slices.BinarySearchFunc(v.Owned, typ, func(o OwnedActors, typ string) int { return strings.Compare(o.Type, typ) })
	if !ok {
		return nil
	}
	return &v.Owned[at]
}

// Other has the facts about another cluster; nil where no object names it.
func (v *ActorView) Other(name string) *ActorCluster {
	at := slices.IndexFunc(v.Clusters, func(c ActorCluster) bool { return c.Name == name })
	if at < 0 {
		return nil
	}
	return &v.Clusters[at]
}

// Lead returns the cluster that a caller's call of an actor goes to, or why it goes nowhere. own
// says that the caller's trust domain is that of this cluster's apps.
func (v *ActorView) Lead(own bool, by Principal, typ string) (owner string, refusal *Refusal) {
	refuse := func(outcome Outcome, format string, args ...any) (string, *Refusal) {
		return "", &Refusal{Outcome: outcome, Reason: fmt.Sprintf(format, args...)}
	}
	caller, i := by.App, v.Import(typ)
	selected := false
	if i != nil {
		_, selected = slices.BinarySearch(i.Callers, caller.ID)
	}
	switch {
	case !own:
		return refuse(Denied, "%s is an app of another cluster by its certificate, and this bridge takes calls of apps of cluster %s alone; if the app belongs here, name its trust domain in isthmus.yaml of the service, identity.trustDomains", by, v.Cluster)
	case caller.Namespace != v.Namespace:
		return refuse(Denied, "%s is not of namespace %s, and this bridge takes calls of that namespace's apps alone; apps of namespace %s call actors of their own, by a bridge there", caller, v.Namespace, caller.Namespace)
	case i == nil || i.Problem == "" && i.Owner != "" && !selected:
		return refuse(Denied, "%s may not call actors of type %s in another cluster: add it to spec.actors of the AppEndpoints %s", caller, typ, caller)
	case i.Problem != "":
		return refuse(Unavailable, "%s", i.Problem)
	case i.Owner == "":
		return refuse(Unavailable, "no cluster that this one hears exports the actor type %s; its owner needs an ActorType object that allows %s", typ, caller)
	case !Allowed(i.Allow, v.Cluster, caller):
		return refuse(Denied, "cluster %s exports the actor type %s and does not allow %s of cluster %s: add it to spec.allow of the ActorType there", i.Owner, typ, caller, v.Cluster)
	case i.Stale:
		return refuse(Stale, "cluster %s owns the actor type %s, and its lease has run out; nothing else may run these actors", i.Owner, typ)
	case i.Draining:
		return refuse(Unavailable, "cluster %s owns the actor type %s and takes no new calls, since the type is about to get another owner", i.Owner, typ)
	}
	return i.Owner, nil
}

// Admit lets the bridge of another cluster call an actor here for an app there, or says why not. by
// is what the bridge's certificate names; the app is the bridge's word.
func (v *ActorView) Admit(by Principal, caller App, typ string) *Refusal {
	refuse := func(outcome Outcome, format string, args ...any) *Refusal {
		return &Refusal{Outcome: outcome, Reason: fmt.Sprintf(format, args...)}
	}
	from, ok := by.App.BridgeCluster()
	other, owned := v.Other(from), v.Owns(typ)
	switch {
	case !ok || by.App.Namespace != v.Namespace || from == v.Cluster:
		return refuse(Denied, "%s is not the bridge of another cluster for namespace %s; only such a bridge calls this one", by, v.Namespace)
	case other == nil:
		return refuse(Denied, "%s is the bridge of cluster %s, and no Cluster object here has that name", by, from)
	case other.Domain != "" && by.Domain != "" && other.Domain != by.Domain:
		return refuse(Denied, "%s is not of the trust domain that the Cluster object %s names for its apps", by, from)
	case caller.Namespace != v.Namespace:
		return refuse(Denied, "%s of cluster %s is not of namespace %s, and only apps of a type's own namespace may call its actors", caller, from, v.Namespace)
	case owned == nil:
		return refuse(NotFound, "cluster %s does not own the actor type %s: no ActorType here names it", v.Cluster, typ)
	case owned.Problem != "":
		return refuse(Unavailable, "%s", owned.Problem)
	case !Allowed(owned.Allow, from, caller):
		return refuse(Denied, "%s of cluster %s may not call actors of type %s in cluster %s: add it to spec.allow of the ActorType", caller, from, typ, v.Cluster)
	case owned.Draining:
		return refuse(Unavailable, "cluster %s owns the actor type %s and takes no new calls, since the type is about to get another owner", v.Cluster, typ)
	}
	return nil
}

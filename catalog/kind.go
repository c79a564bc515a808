package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of an object.
type Kind string

// The kinds of objects.
const (
	KindAppEndpoints Kind = "AppEndpoints"
	KindAppExport    Kind = "AppExport"
	KindCluster      Kind = "Cluster"
	KindAppInstance  Kind = "AppInstance"
	KindActorType    Kind = "ActorType"
)

// Definition has the facts about a kind beside its fields and rules.
type Definition struct {
	Kind             Kind
	Plural, Singular string // in lower case
	Short            string // for kubectl and isthmus; unlike those of other custom resources
	Clusterwide      bool   // the objects have no namespace
	// WriteOrder is when objects of the kind are written beside others: lowest first. What an
	// object names comes before it.
	WriteOrder int
	Columns    []Column // of a table, after the name of the object
}

// Column is a column of the tables that "isthmus get" and "kubectl get" show.
type Column struct {
	Heading string
	// Value is the cell for "isthmus get"; nil: only kubectl has the column.
	Value func(Object) string
	// Path is the JSONPath for "kubectl get"; empty: only isthmus has the column.
	Path        string
	Description string // for kubectl
}

// definitions are the one table of kinds. docs/how-to/add-a-kind.md says what else a kind
// needs, and tests hold that nothing of it is missing.
var definitions = []Definition{
	{
		Kind: KindActorType, Plural: "actortypes", Singular: "actortype", Short: "acty", WriteOrder: 2,
		Columns: []Column{
			{Heading: "TYPE", Value: column(func(a *ActorType) string { return a.Type }), Path: ".spec.type"},
			{Heading: "OWNER", Value: column(func(a *ActorType) string { return a.Owner }), Path: ".spec.owner"},
			{Heading: "ALLOWS", Value: column(func(a *ActorType) string { return briefAllow(a.Allow) })},
			{Heading: "DRAINING", Value: column(func(a *ActorType) string { return yesNo(a.Draining) }), Path: ".spec.draining"},
		},
	},
	{
		Kind: KindAppEndpoints, Plural: "appendpoints", Singular: "appendpoint", Short: "aep", WriteOrder: 3,
		Columns: []Column{{Heading: "CALLS", Value: column((*AppEndpoints).callees)}},
	},
	{
		Kind: KindAppExport, Plural: "appexports", Singular: "appexport", Short: "axp", WriteOrder: 2,
		Columns: []Column{{Heading: "ALLOWS", Value: column((*AppExport).callers)}},
	},
	{
		Kind: KindAppInstance, Plural: "appinstances", Singular: "appinstance", Short: "ain", WriteOrder: 1,
		Columns: []Column{
			{Heading: "APP", Value: column(func(i *AppInstance) string { return i.App }), Path: ".spec.app"},
			{Heading: "ADDRESS", Value: column(func(i *AppInstance) string { return i.Address.String() }), Path: ".spec.address"},
			{Heading: "ZONE", Value: column(func(i *AppInstance) string { return orWord(i.Zone, "-") }), Path: ".spec.zone"},
			{Heading: "CHECK", Value: column((*AppInstance).checked)},
		},
	},
	{
		Kind: KindCluster, Plural: "clusters", Singular: "cluster", Short: "icl", Clusterwide: true, WriteOrder: 0,
		Columns: []Column{
			{Heading: "GATEWAYS", Value: column(func(c *Cluster) string { return Brief(c.GatewayNames()) })},
			{Heading: "NETWORK", Value: column(func(c *Cluster) string { return c.Network }), Path: ".spec.network"},
			{Heading: "STALE AFTER", Value: column(func(c *Cluster) string { return c.StaleAfter.String() })},
			{Heading: "GUEST UNTIL", Value: column((*Cluster).guestUntil), Path: ".spec.guest.until", Description: "When it ends, if it is a guest."},
			{Heading: "GATEWAY", Path: ".spec.gateways[0].address", Description: "The first of its gateways."},
		},
	},
}

// column is a Value for objects of one type.
func column[O Object](value func(O) string) func(Object) string {
	return func(o Object) string {
		if of, ok := o.(O); ok {
			return value(of)
		}
		return ""
	}
}

// Definitions lists the definition of every kind. Callers must not change it.
func Definitions() []Definition { return definitions }

// Kinds lists every kind.
func Kinds() []Kind {
	all := make([]Kind, len(definitions))
	for i := range definitions {
		all[i] = definitions[i].Kind
	}
	return all
}

// Definition returns the kind's definition; nil for an unknown one. Callers must not change it.
func (k Kind) Definition() *Definition {
	for i := range definitions {
		if definitions[i].Kind == k {
			return &definitions[i]
		}
	}
	return nil
}

// Namespaced tells whether objects of this kind live in a namespace.
func (k Kind) Namespaced() bool {
	d := k.Definition()
	return d == nil || !d.Clusterwide
}

// callees are the apps of a selection in a few words.
func (s *AppEndpoints) callees() string {
	calls := make([]string, len(s.Endpoints), len(s.Endpoints)+len(s.Actors))
	for i := range s.Endpoints {
		calls[i] = s.Endpoints[i].App.Within(s.App.Namespace)
	}
	for i := range s.Actors {
		calls = append(calls, "actors "+s.Actors[i].Type)
	}
	return Brief(calls)
}

// callers are those that an export allows in a few words.
func (e *AppExport) callers() string { return briefAllow(e.Allow) }

func briefAllow(allow []Allow) string {
	allows := make([]string, len(allow))
	for i, a := range allow {
		allows[i] = a.String()
	}
	return Brief(allows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// checked is the health check in a few words, such as "http :3500/v1.0/healthz every 2s".
func (i *AppInstance) checked() string {
	c := i.Check
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s :%d%s every %s", c.Kind, c.Port, c.Path, c.Interval)
}

// GatewayNames are the cluster's gateways; of one for a single app, also which app.
func (c *Cluster) GatewayNames() []string {
	all := slices.Clone(c.Gateways)
	for _, g := range c.AppGateways {
		all = append(all, g.Address+" for "+g.App.String())
	}
	return all
}

// String is the entry as "cluster:namespace/app".
func (a Allow) String() string {
	return orWord(a.Cluster, "*") + ":" + orWord(a.Namespace, "*") + "/" + orWord(a.App, "*")
}

// Within is the app's name as seen from a namespace.
func (a App) Within(namespace string) string {
	if a.Namespace == namespace {
		return a.ID
	}
	return a.String()
}

func orWord(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

// Brief joins a few items, and counts the rest.
func Brief(items []string) string { return BriefOf(items, 4) }

// BriefOf joins so many items, and counts the rest.
func BriefOf(items []string, most int) string {
	if len(items) == 0 {
		return "none"
	}
	if len(items) > most {
		return strings.Join(items[:most], ", ") + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, ", ")
}

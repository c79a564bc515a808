package catalog

import (
	"cmp"
	"net/netip"
	"strconv"
	"time"
)

// Version is the apiVersion of every object.
const Version = "isthmus.dev/v1alpha1"

// Key names an object. Namespace is empty for a Cluster.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is "Kind namespace/name", or "Kind name" without a namespace.
func (k Key) String() string { return string(k.Kind) + " " + k.NamespacedName() }

// NamespacedName is "namespace/name", or "name" without a namespace.
func (k Key) NamespacedName() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Source says where an object was written. File is empty for an object that came
// from a key-value store; lines then count in its canonical YAML, as
// "isthmus get -o yaml" prints it.
type Source struct {
	File string
	Line int // of the object's first line, from 1
}

// Object is one of *AppEndpoints, *AppExport, *AppInstance and *Cluster. Objects are immutable
// once they leave the decoder that made them.
type Object interface {
	Key() Key
	Origin() Source
}

// AppEndpoints is a selection: what one app may call, and by which routes.
type AppEndpoints struct {
	App       App
	Endpoints []Endpoint
	Source    Source
}

// Key names the object.
func (s *AppEndpoints) Key() Key { return Key{KindAppEndpoints, s.App.Namespace, s.App.ID} }

// Origin says where the object was written.
func (s *AppEndpoints) Origin() Source { return s.Source }

// Rule names the selection as the reason of a refusal: the object, and where it stands.
func (s *AppEndpoints) Rule() string {
	if s.Source.File == "" {
		return s.Key().String()
	}
	return s.Key().String() + " (" + s.Source.File + ":" + strconv.Itoa(s.Source.Line) + ")"
}

// Endpoint is one app that a selection holds.
type Endpoint struct {
	App       App
	Routes    []RouteSpec // empty: local first, then every cluster that exports the app to the caller
	WhenStale WhenStale
	Locality  Locality
	Line      int // where the endpoint starts, in the object's Source
}

// LocalCluster is the route name for the cluster where the caller runs.
const LocalCluster = "local"

// RouteSpec is one way to an app, as a selection writes it.
type RouteSpec struct {
	Cluster  string // LocalCluster or the name of a Cluster
	Priority uint32 // lowest first
	Weight   uint32 // share within one priority; 0 takes no traffic
}

// Bounds of a route and of a selection.
const (
	DefaultWeight = 1
	MaxWeight     = 10_000
	MaxPriority   = 100
	MaxEndpoints  = 20_000
	MaxRoutes     = 100
)

// WhenStale says what becomes of a route when its cluster's lease has run out.
type WhenStale uint8

// The values of WhenStale.
const (
	Withdraw WhenStale = iota // leave the route out (the default)
	Serve                     // go on with the last known state
)

// String is the value as objects write it.
func (w WhenStale) String() string {
	if w == Serve {
		return "serve"
	}
	return "withdraw"
}

// Locality says whether a caller prefers the instances of its own zone.
type Locality uint8

// The values of Locality.
const (
	DefaultLocality Locality = iota // as the cluster has it
	NoLocality                      // all instances of a route are alike
	PreferZone                      // those of the caller's zone come first
)

// String is the value as objects write it; empty for the default.
func (l Locality) String() string { return [...]string{"", "none", "prefer"}[l] }

// Prefers tells whether the caller's zone comes first, in a cluster that does or does not by
// default.
func (l Locality) Prefers(cluster bool) bool {
	return l == PreferZone || l == DefaultLocality && cluster
}

// AppExport is what this cluster lets other clusters call.
type AppExport struct {
	App    App
	Allow  []Allow // nothing is allowed by an empty list
	Source Source
}

// Key names the object.
func (e *AppExport) Key() Key { return Key{KindAppExport, e.App.Namespace, e.App.ID} }

// Origin says where the object was written.
func (e *AppExport) Origin() Source { return e.Source }

// Allow names callers. An empty field, like "*", means any.
type Allow struct {
	Cluster   string
	Namespace string
	App       string
}

// Cluster is a cluster that this one can reach.
type Cluster struct {
	Name        string
	Gateways    []string     // "host:port", each checked by CheckGateway
	AppGateways []AppGateway // of one port for each app
	Network     string
	// NetworkRanges are where its instances may be on a shared network; none: anywhere.
	NetworkRanges []netip.Prefix
	StaleAfter    time.Duration // 0 in the object means DefaultStaleAfter here
	RampUp        time.Duration // omitted in the object means DefaultRampUp here; 0 is at once
	Trust         Trust
	Source        Source
}

// Trust says what the certificate of a cluster's resolver service is checked against.
// The zero value is this cluster's own roots, and any trust domain.
type Trust struct {
	Domain string // of its SPIFFE ID; empty: any
	Roots  string // PEM; empty: this cluster's own roots
}

// DefaultRampUp is how long traffic takes to come back when a Cluster does not say.
const DefaultRampUp = 10 * time.Second

// DefaultStaleAfter is how long a peer's word holds when its Cluster does not say.
const DefaultStaleAfter = 10 * time.Second

// Key names the object.
func (c *Cluster) Key() Key { return Key{KindCluster, "", c.Name} }

// Origin says where the object was written.
func (c *Cluster) Origin() Source { return c.Source }

// AppInstance is an instance that an object names, since no other source knows it.
type AppInstance struct {
	Namespace string // of the object and of the app
	Name      string // the instance's own
	App       string // the app-id
	Address   netip.AddrPort
	Zone      string
	Check     *HealthCheck // nil: it is always ready
	Source    Source
}

// Key names the object.
func (i *AppInstance) Key() Key { return Key{KindAppInstance, i.Namespace, i.Name} }

// Origin says where the object was written.
func (i *AppInstance) Origin() Source { return i.Source }

// AppRef is the app that it is an instance of.
func (i *AppInstance) AppRef() App { return App{Namespace: i.Namespace, ID: i.App} }

// HealthCheck finds out whether an instance is ready. Defaults are filled in.
type HealthCheck struct {
	Kind           CheckKind
	Port           uint16 // that of the instance's address where the object has none
	Path           string // HTTP
	Host           string // HTTP; empty: the address
	Service        string // gRPC; empty: the whole server
	TLS            bool   // HTTP and gRPC; the certificate is not checked
	Interval       time.Duration
	Timeout        time.Duration
	HealthyAfter   int
	UnhealthyAfter int
}

// CheckKind is how a health check asks.
type CheckKind uint8

// The kinds of health checks.
const (
	CheckTCP CheckKind = iota
	CheckHTTP
	CheckGRPC
)

// String is the kind as objects write it.
func (k CheckKind) String() string { return [...]string{"tcp", "http", "grpc"}[k] }

// Instance is one running sidecar of an app.
type Instance struct {
	ID       string // unique within its app
	App      App
	Address  netip.AddrPort // of its internal gRPC server
	Draining bool           // it takes no new calls: it says so, or its source does, or it is not ready
	Zone     string         // where it runs; empty where the source does not know
	// Unverified says that another machine than that of the address names it there. It takes
	// the address from no app that is known there otherwise.
	Unverified bool
}

// Allows tells whether the export lets an app of a cluster call.
func (a Allow) Allows(cluster string, app App) bool {
	return matches(a.Cluster, cluster) && matches(a.Namespace, app.Namespace) && matches(a.App, app.ID)
}

func matches(pattern, s string) bool { return pattern == "" || pattern == "*" || pattern == s }

// Allowed tells whether one of the entries lets an app of a cluster call.
func Allowed(allow []Allow, cluster string, app App) bool {
	for i := range allow {
		if allow[i].Allows(cluster, app) {
			return true
		}
	}
	return false
}

// ForCluster tells whether the entry concerns callers in a cluster at all.
func (a Allow) ForCluster(cluster string) bool { return matches(a.Cluster, cluster) }

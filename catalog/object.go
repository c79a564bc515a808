package catalog

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

// ResourceName is "kind/namespace/name" with the plural of the kind, which commands take as one
// argument, or "kind/name" without a namespace.
func (k Key) ResourceName() string {
	return k.Kind.Definition().Plural + "/" + k.NamespacedName()
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Source is where an object was written. File is empty if the object is from a key-value store;
// lines then count in its canonical YAML, as "isthmus get -o yaml" prints it.
type Source struct {
	File string
	Line int // of the object's first line, from 1
	// From names what the object is derived from, with its place; empty for one that was written.
	// Nobody can write a derived object, and no store holds it.
	From string
}

// String is what the object is derived from, or "file:line"; empty for an object that was written
// into a key-value store.
func (s Source) String() string {
	switch {
	case s.From != "":
		return "from " + s.From
	case s.File == "":
		return ""
	}
	return s.File + ":" + strconv.Itoa(s.Line)
}

// Of names an object and its place.
func (s Source) Of(k Key) string {
	if place := s.String(); place != "" {
		return k.String() + " (" + place + ")"
	}
	return k.String()
}

// Object is one of *ActorType, *AppEndpoints, *AppExport, *AppInstance and *Cluster. An object is
// immutable after its decoding.
type Object interface {
	Key() Key
	Origin() Source
}

// AppEndpoints is a selection: the apps that one app may call, and by which routes.
type AppEndpoints struct {
	App       App
	Endpoints []Endpoint
	Actors    []ActorEndpoint
	From      []string // of a derived or declared selection: that of the Source, for each endpoint
	Source    Source
	// Default is the default that the app follows, which has no selection of its own; nil for an
	// object that was written for the app.
	Default *AppEndpoints
	// Declared says that the app's instances declare it, and no object does.
	Declared bool
}

// DefaultName is the name of an AppEndpoints that apps of its namespace follow which have none of
// their own. In the namespace of this name it is for apps of all namespaces; a namespace's comes
// first.
const DefaultName = "*"

// In Kubernetes, where nothing can have that name, a default has another one. That for all
// namespaces is in DefaultsNamespace, so that whoever may write there decides.
const (
	KubernetesDefault        = "default.isthmus.dev"
	KubernetesClusterDefault = "cluster-default.isthmus.dev"
	DefaultsNamespace        = "isthmus-system"
)

// FromKubernetes is the app of an AppEndpoints by the names that it has in Kubernetes.
func FromKubernetes(namespace, name string) App {
	switch {
	case name == KubernetesDefault:
		return App{namespace, DefaultName}
	case name == KubernetesClusterDefault && namespace == DefaultsNamespace:
		return App{DefaultName, DefaultName}
	}
	return App{namespace, name}
}

// InKubernetes is the inverse of [FromKubernetes].
func (a App) InKubernetes() (namespace, name string) {
	switch {
	case a.ID != DefaultName:
		return a.Namespace, a.ID
	case a.Namespace == DefaultName:
		return DefaultsNamespace, KubernetesClusterDefault
	}
	return a.Namespace, KubernetesDefault
}

// CheckSelection checks the name of an AppEndpoints: that of an app, or of a default.
func (a App) CheckSelection() error {
	switch {
	case a.ID != DefaultName:
		return a.CheckHost()
	case a.Namespace == DefaultName:
		return nil
	}
	return CheckNamespace(a.Namespace)
}

// IsDefault tells whether the object is a default, and not the selection of one app.
func (s *AppEndpoints) IsDefault() bool { return s.App.ID == DefaultName }

// For is the selection of one app that follows a default. An endpoint without a namespace is in the
// app's own.
func (s *AppEndpoints) For(app App) *AppEndpoints {
	next := &AppEndpoints{App: app, Endpoints: slices.Clone(s.Endpoints), Actors: s.Actors, From: s.From, Source: s.Source, Default: s}
	for i := range next.Endpoints {
		if e := &next.Endpoints[i]; e.App.Namespace == DefaultName {
			e.App.Namespace = app.Namespace
		}
	}
	return next
}

// object is the app of the object that was written.
func (s *AppEndpoints) object() App {
	if s.Default != nil {
		return s.Default.App
	}
	return s.App
}

// OriginOf is where an endpoint was written, or the document that it derives from.
func (s *AppEndpoints) OriginOf(endpoint int) Source {
	source := s.Source
	source.Line = int(s.Endpoints[endpoint].Line)
	if endpoint < len(s.From) {
		source.From = s.From[endpoint]
	}
	return source
}

// Key names the object.
func (s *AppEndpoints) Key() Key {
	app := s.object()
	return Key{KindAppEndpoints, app.Namespace, app.ID}
}

// Origin is where the object was written.
func (s *AppEndpoints) Origin() Source { return s.Source }

// Rule names the object and its place, for refusals.
func (s *AppEndpoints) Rule() string {
	return s.Source.Of(s.Key())
}

// Endpoint is one app in a selection.
type Endpoint struct {
	App       App
	Routes    []RouteSpec // empty: local first, then every exporting cluster
	WhenStale WhenStale
	Locality  Locality
	Hash      Hash
	As        string // the app-id by which callers call it, in their own namespace; empty: its own
	Line      int32  // of the endpoint's start, in the object's Source
	// SelfDeclared says that only a running sidecar of the app declares the call. Anybody with the
	// app's key could, so it opens no guard.
	SelfDeclared bool
}

// Name is the app that a caller calls to reach the endpoint's.
func (e *Endpoint) Name(caller App) App {
	if e.As == "" {
		return e.App
	}
	return App{caller.Namespace, e.As}
}

// LocalCluster names the caller's own cluster in a route.
const LocalCluster = "local"

// RouteSpec is one way to an app in a selection.
type RouteSpec struct {
	Cluster  string // LocalCluster or the name of a Cluster
	Priority uint32 // lowest first
	Weight   uint32 // share within one priority; 0 gets no calls
	MinReady MinReady
	Versions Versions
}

// Bounds of a route and of a selection.
const (
	DefaultWeight = 1
	MaxWeight     = 10_000
	MaxPriority   = 100
	MaxEndpoints  = 20_000
	MaxRoutes     = 100
)

// WhenStale says what happens to a route when its cluster's lease has ended.
type WhenStale uint8

// The values of WhenStale.
const (
	Withdraw WhenStale = iota // leave the route out (the default)
	Serve                     // use the last known state
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
	DefaultLocality Locality = iota // the cluster's default
	NoLocality                      // all instances of a route are equal
	PreferZone                      // instances in the caller's zone come first
)

// String is the value as objects write it; empty for the default.
func (l Locality) String() string { return [...]string{"", "none", "prefer"}[l] }

// Prefers tells whether the caller's zone comes first; cluster is the cluster's default.
func (l Locality) Prefers(cluster bool) bool {
	return l == PreferZone || l == DefaultLocality && cluster
}

// Hash says which calls go to the same instance. The zero value keeps none together.
type Hash struct {
	Header string // of HTTP, or metadata key of gRPC, in lower case; calls with the same value
	Source string // all calls of the calling app: HashSource in an object, the app's name in a view
}

// MaxHeader bounds the name of a header.
const MaxHeader = 128

// CheckHeader checks the name of a header in lower case (RFC 9110, 5.1).
func CheckHeader(name string) error {
	if name == "" || len(name) > MaxHeader {
		return fmt.Errorf("has %d characters; a header has 1 to %d", len(name), MaxHeader)
	}
	for i, c := range []byte(name) {
		if letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'; !letter && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("has %q at position %d; a header here has lower-case letters, digits, '-', '_' and '.'", rune(c), i+1)
		}
	}
	return nil
}

// By is the hash in the view of a caller.
func (h Hash) By(caller App) Hash {
	if h.Source != "" {
		h.Source = caller.String()
	}
	return h
}

const byHeader, bySource = "header ", "source "

// String is "header " or "source " and its value; empty for the zero value.
func (h Hash) String() string {
	switch {
	case h.Header != "":
		return byHeader + h.Header
	case h.Source != "":
		return bySource + h.Source
	}
	return ""
}

// HashSource is the one value of a source, as objects write it.
const HashSource = "app"

// ParseHash is the inverse of [Hash.String].
func ParseHash(text string) (Hash, error) {
	if text == "" {
		return Hash{}, nil
	}
	if source, ok := strings.CutPrefix(text, bySource); ok {
		return Hash{Source: source}, nil
	}
	header, ok := strings.CutPrefix(text, byHeader)
	if !ok {
		return Hash{}, fmt.Errorf("hash %q is unknown to this version", Clip(text, MaxHeader))
	}
	return Hash{Header: header}, CheckHeader(header)
}

// AppExport is an app that this cluster lets other clusters call, and other namespaces of its own.
type AppExport struct {
	App    App
	Allow  []Allow // empty: nobody
	Source Source
}

// Key names the object.
func (e *AppExport) Key() Key { return Key{KindAppExport, e.App.Namespace, e.App.ID} }

// Origin is where the object was written.
func (e *AppExport) Origin() Source { return e.Source }

// Allow selects callers. An empty field, like "*", means any.
type Allow struct {
	Cluster   string
	Namespace string
	App       string
}

// Cluster is a cluster that this one can reach.
type Cluster struct {
	Name        string
	Gateways    []string     // "host:port", each checked by CheckGateway
	AppGateways []AppGateway // with a port for each app
	Network     string
	// NetworkRanges bound its instances' addresses on a shared network; none: any address.
	NetworkRanges []netip.Prefix
	StaleAfter    time.Duration // 0 in the object means DefaultStaleAfter here
	RampUp        time.Duration // omitted in the object means DefaultRampUp here; 0 is at once
	Trust         Trust
	Tunnel        string // TunnelAccept, TunnelDial, or empty: each dials the other
	Guest         *Guest // nil for an ordinary cluster
	Labels        []string
	IntroduceTo   *ClusterSelector // nil: no cluster is told of it
	Introduces    *Introduces      // nil: it introduces no cluster here
	IntroducedBy  string           // the cluster that introduces it here; empty for a written object
	Source        Source
}

// The values of Cluster.Tunnel, for clusters of which only one can be reached.
const (
	TunnelAccept = "accept" // that cluster dials this one, and is called over its connections
	TunnelDial   = "dial"   // this cluster dials that one
)

// Trust is what the certificate of a cluster's resolver service is checked against. The zero
// value is this cluster's own roots, and any trust domain.
type Trust struct {
	Domain string // of its SPIFFE ID; empty: any
	Roots  string // PEM; empty: this cluster's own roots
	// AppDomain is the trust domain of the cluster's apps; empty: Domain.
	AppDomain string
	// Rotation is RotationAccept, or empty: Roots never follow what the cluster announces.
	Rotation string
}

// RotationAccept has the roots of a cluster replaced by those that it announces for itself.
const RotationAccept = "accept"

// AppsDomain is the trust domain of the cluster's apps; empty: any.
func (t Trust) AppsDomain() string { return cmp.Or(t.AppDomain, t.Domain) }

// DefaultRampUp is the default time in which traffic comes back.
const DefaultRampUp = 10 * time.Second

// DefaultStaleAfter is the default length of a lease.
const DefaultStaleAfter = 10 * time.Second

// Key names the object.
func (c *Cluster) Key() Key { return Key{KindCluster, "", c.Name} }

// Origin is where the object was written.
func (c *Cluster) Origin() Source { return c.Source }

// AppInstance is an instance that an object defines, since no other source knows it.
type AppInstance struct {
	Namespace string // of the object and of the app
	Name      string // the instance's own
	App       string // the app-id
	Address   netip.AddrPort
	Zone      string
	Version   string
	Check     *HealthCheck // nil: always ready
	Source    Source
}

// Key names the object.
func (i *AppInstance) Key() Key { return Key{KindAppInstance, i.Namespace, i.Name} }

// Origin is where the object was written.
func (i *AppInstance) Origin() Source { return i.Source }

// AppRef is the app of the instance.
func (i *AppInstance) AppRef() App { return App{Namespace: i.Namespace, ID: i.App} }

// HealthCheck checks whether an instance is ready. Defaults are filled in.
type HealthCheck struct {
	Kind           CheckKind
	Port           uint16 // the instance's own if the object has none
	Path           string // HTTP
	Host           string // HTTP; empty: the address
	Service        string // gRPC; empty: the whole server
	TLS            bool   // HTTP and gRPC; the certificate is not checked
	Interval       time.Duration
	Timeout        time.Duration
	HealthyAfter   int
	UnhealthyAfter int
}

// CheckKind is the protocol of a health check.
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
	// Unverified says that a delegate registered it from another machine than that of the
	// address. It takes the address from no app.
	Unverified bool
	Zone       string // where it runs; empty where the source does not know
	Version    string // of the app; empty where the source does not know
	// Since is when it registered: of two live registrations for one address, the later has it.
	// Catalogs may number their entries by it. 0 where the source does not know.
	Since int64
	Calls Calls // what its pod, or the sidecar itself, declares to call
	// Account is the Kubernetes service account of its pod; empty where the source does not know.
	Account string
}

// Allows tells whether the entry lets an app of a cluster call.
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

// ForCluster tells whether the entry allows any caller in another cluster.
func (a Allow) ForCluster(cluster string) bool { return matches(a.Cluster, cluster) }

// ForOwn tells whether the entry allows any caller in the own cluster, which goes by two names.
func (a Allow) ForOwn(cluster string) bool { return a.Cluster == LocalCluster || a.ForCluster(cluster) }

// Outward tells whether the entry allows any caller outside of the own cluster.
func (a Allow) Outward(own string) bool { return a.Cluster != LocalCluster && a.Cluster != own }

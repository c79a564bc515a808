// Package authz says who may call which method of the service's gRPC servers, and makes servers
// that hold calls to it.
package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Kind is a kind of caller, by certificate.
type Kind string

// The kinds of callers.
const (
	Sidecar  Kind = "sidecar"     // an app of this cluster
	Operator Kind = "operator"    // one that the configuration names, at listen.operator, or by Kubernetes' RBAC
	Peer     Kind = "peer"        // another cluster's resolver service
	Replica  Kind = "replica"     // a resolver service of this cluster
	Foreign  Kind = "foreign app" // under a root of ours, in a trust domain that is not
	Nobody   Kind = "nobody"      // without a certificate, which takes identity.insecure
)

// The gRPC servers.
const (
	AtResolver   = "resolver"   // listen.resolver
	AtOperator   = "operator"   // listen.operator, which only this user may open
	AtKubernetes = "kubernetes" // listen.kubernetes, for whom Kubernetes' RBAC lets in
	AtConsole    = "console"    // within the process, for who listen.console has let in
	AtGateway    = "gateway"    // the reserved name at listen.gateway
	// The reserved name there for clusters that are invited, whose roots are not known yet.
	AtInvitation = "invitation"
)

// access says who may call which method where. A method without a line is for nobody.
// Handlers decide which app's view a sidecar may have: its own.
var access = map[string]map[string][]Kind{
	AtResolver: {
		v1alpha1.Resolver_Watch_FullMethodName:     {Sidecar, Operator, Nobody},
		v1alpha1.Resolver_Resolve_FullMethodName:   {Sidecar, Operator, Nobody},
		v1alpha1.Actors_Watch_FullMethodName:       {Sidecar, Operator, Nobody},
		v1alpha1.Objects_Apply_FullMethodName:      {Operator, Nobody},
		v1alpha1.Objects_Get_FullMethodName:        {Operator, Nobody},
		v1alpha1.Objects_Delete_FullMethodName:     {Operator, Nobody},
		v1alpha1.Objects_History_FullMethodName:    {Operator, Nobody},
		v1alpha1.Objects_Analyze_FullMethodName:    {Operator, Nobody},
		v1alpha1.Status_Status_FullMethodName:      {Operator, Nobody},
		v1alpha1.Status_Check_FullMethodName:       {Operator, Nobody},
		v1alpha1.Status_Support_FullMethodName:     {Operator, Nobody},
		v1alpha1.Inventory_Apps_FullMethodName:     {Operator, Nobody},
		v1alpha1.Inventory_Sidecars_FullMethodName: {Operator, Nobody},
		v1alpha1.Inventory_Events_FullMethodName:   {Operator, Nobody},
		v1alpha1.Inventory_Probe_FullMethodName:    {Operator, Nobody},
		v1alpha1.Inventory_Calls_FullMethodName:    {Operator, Replica, Nobody},
		v1alpha1.Inventory_Graph_FullMethodName:    {Operator, Nobody},
		v1alpha1.Inventory_Traffic_FullMethodName:  {Operator, Replica, Nobody},
		v1alpha1.Inventory_Tap_FullMethodName:      {Operator},
		v1alpha1.Inventory_Policies_FullMethodName: {Operator, Nobody},
		v1alpha1.Link_Invite_FullMethodName:        {Operator, Nobody},
		v1alpha1.Link_Follow_FullMethodName:        {Operator, Nobody},
		v1alpha1.Link_Accept_FullMethodName:        {Operator, Nobody},
		v1alpha1.Link_Confirm_FullMethodName:       {Operator, Nobody},
		v1alpha1.Link_Invitations_FullMethodName:   {Operator, Nobody},
		v1alpha1.Link_Revoke_FullMethodName:        {Operator, Nobody},
		v1alpha1.Link_Trust_FullMethodName:         {Operator, Nobody},
		v1alpha1.Rotation_Show_FullMethodName:      {Operator, Replica, Nobody},
		v1alpha1.Rotation_Announce_FullMethodName:  {Operator, Nobody},
		v1alpha1.Rotation_Accept_FullMethodName:    {Operator, Nobody},
	},
	AtOperator:   operatorsAlone(),
	AtKubernetes: operatorsAlone(),
	AtConsole:    operatorsAlone(),
	AtGateway: {
		v1alpha1.Peering_Exports_FullMethodName:       {Peer},
		v1alpha1.Peering_Renew_FullMethodName:         {Peer},
		v1alpha1.Peering_Introductions_FullMethodName: {Peer},
		v1alpha1.Guests_Sign_FullMethodName:           {Peer},
		v1alpha1.Guests_Show_FullMethodName:           {Peer},
		v1alpha1.Guests_Leave_FullMethodName:          {Peer},
	},
	AtInvitation: {v1alpha1.Linking_Meet_FullMethodName: {Peer}},
}

// The verbs that Kubernetes' RBAC must allow a caller of each method at listen.kubernetes.
const (
	mayRead  = "read"
	mayWrite = "write"
	mayLink  = "link"
	mayTap   = "tap"
)

// verbs are the methods of operators, and what each takes at listen.kubernetes. Nothing is written
// by a dry run, so that takes mayRead.
var verbs = map[string]string{
	v1alpha1.Resolver_Resolve_FullMethodName:   mayRead,
	v1alpha1.Actors_Watch_FullMethodName:       mayRead,
	v1alpha1.Objects_Apply_FullMethodName:      mayWrite,
	v1alpha1.Objects_Get_FullMethodName:        mayRead,
	v1alpha1.Objects_Delete_FullMethodName:     mayWrite,
	v1alpha1.Objects_History_FullMethodName:    mayRead,
	v1alpha1.Objects_Analyze_FullMethodName:    mayRead,
	v1alpha1.Status_Status_FullMethodName:      mayRead,
	v1alpha1.Status_Check_FullMethodName:       mayRead,
	v1alpha1.Status_Support_FullMethodName:     mayRead,
	v1alpha1.Inventory_Apps_FullMethodName:     mayRead,
	v1alpha1.Inventory_Sidecars_FullMethodName: mayRead,
	v1alpha1.Inventory_Events_FullMethodName:   mayRead,
	v1alpha1.Inventory_Probe_FullMethodName:    mayRead,
	v1alpha1.Inventory_Calls_FullMethodName:    mayRead,
	v1alpha1.Inventory_Graph_FullMethodName:    mayRead,
	v1alpha1.Inventory_Traffic_FullMethodName:  mayRead,
	v1alpha1.Inventory_Tap_FullMethodName:      mayTap,
	v1alpha1.Inventory_Policies_FullMethodName: mayRead,
	v1alpha1.Link_Invite_FullMethodName:        mayLink,
	v1alpha1.Link_Follow_FullMethodName:        mayLink,
	v1alpha1.Link_Accept_FullMethodName:        mayLink,
	v1alpha1.Link_Confirm_FullMethodName:       mayLink,
	v1alpha1.Link_Invitations_FullMethodName:   mayRead,
	v1alpha1.Link_Revoke_FullMethodName:        mayLink,
	v1alpha1.Link_Trust_FullMethodName:         mayRead,
	v1alpha1.Rotation_Show_FullMethodName:      mayRead,
	v1alpha1.Rotation_Announce_FullMethodName:  mayLink,
	v1alpha1.Rotation_Accept_FullMethodName:    mayLink,
}

// dry is a request that may be one without effect.
type dry interface{ GetDryRun() bool }

// verbOf is what a call takes of an operator whose rights are told apart. The request is nil where it
// is not there yet.
func verbOf(method string, request any) (string, error) {
	verb := verbs[method]
	if d, ok := request.(dry); ok && d.GetDryRun() {
		verb = mayRead
	}
	if i, ok := request.(*v1alpha1.InviteRequest); ok && i.GetGuest() != nil {
		verb = mayWrite // as for the object that says whose calls are taken
	}
	if verb == "" {
		return "", status.Errorf(codes.PermissionDenied, "%s is not for operators", serviceOf(method))
	}
	return verb, nil
}

// operatorsAlone lets operators call what verbs has, and nobody register.
func operatorsAlone() map[string][]Kind {
	methods := map[string][]Kind{v1alpha1.Resolver_Watch_FullMethodName: {}}
	for method := range verbs {
		methods[method] = []Kind{Operator}
	}
	return methods
}

// Authorizer tells kinds of callers apart, and makes servers that hold them to rules.
type Authorizer struct {
	Cluster      string
	Namespace    string   // of Isthmus' own apps
	TrustDomains []string // whose apps are this cluster's, beside the service's own
	Operators    []catalog.App
	Identity     *identity.Source
	Options      []grpc.ServerOption // of every server
	Log          *throttle.Log
}

// KindOf is what kind of caller makes a call.
func (a *Authorizer) KindOf(ctx context.Context) (Kind, identity.ID) {
	id, known := identity.FromContext(ctx)
	_, local := identity.FromLocal(ctx)
	if _, person := identity.FromPerson(ctx); local || person {
		return Operator, id
	}
	_, isPeer := identity.FromPeer(ctx)
	cluster, isService := identity.ServiceCluster(a.Namespace, id.App)
	switch {
	case !known:
		return Nobody, id
	case isPeer, isService && cluster != a.Cluster:
		return Peer, id
	case !a.ownDomain(id.TrustDomain):
		return Foreign, id
	case slices.Contains(a.Operators, id.App):
		return Operator, id
	case isService:
		return Replica, id
	default:
		return Sidecar, id
	}
}

// Domains are the trust domains whose apps are this cluster's.
func (a *Authorizer) Domains() []string {
	own, ok := a.Identity.ID()
	if !ok {
		return a.TrustDomains
	}
	return append([]string{own.TrustDomain}, a.TrustDomains...)
}

// ownDomain tells whether apps of a trust domain are this cluster's.
func (a *Authorizer) ownDomain(domain string) bool { return slices.Contains(a.Domains(), domain) }

// checkAccess refuses a call that the rules do not allow.
func (a *Authorizer) checkAccess(ctx context.Context, r Rules, method string) error {
	kind, id := a.KindOf(ctx)
	if slices.Contains(r.methods[method], kind) {
		return nil
	}
	a.Log.Warn("call "+id.String(), "refused a call", "listener", r.listener, "method", method, "caller", id.String(), "kind", string(kind))
	return status.Error(codes.PermissionDenied, a.refusal(kind, id, serviceOf(method)))
}

// refusal says why a caller may not call a service, and what to do.
func (a *Authorizer) refusal(k Kind, id identity.ID, service string) string {
	switch k {
	case Foreign:
		own, _ := a.Identity.ID()
		return fmt.Sprintf("%s is of another trust domain than cluster %s, which is %s; if its apps belong here, name it in isthmus.yaml of the service, identity.trustDomains",
			id, a.Cluster, own.TrustDomain)
	case Operator:
		return service + " is for sidecars; they connect to listen.resolver"
	case Peer:
		return fmt.Sprintf("%s is the resolver service of another cluster; it may ask for exports through the gateway, and nothing else", id)
	case Nobody:
		return "a caller without a certificate may call nothing here"
	default:
		return fmt.Sprintf("%s is for operators, and app %s is none; operators are named in isthmus.yaml of the service", service, id.App)
	}
}

// serviceOf is the service of a method's full name, "/service/method".
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service
}

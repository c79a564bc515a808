package resolverservice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// kind is a kind of caller, by certificate.
type kind string

const (
	sidecar  kind = "sidecar"     // an app of this cluster
	operator kind = "operator"    // one that the configuration names, at listen.operator, or by Kubernetes' RBAC
	peer     kind = "peer"        // another cluster's resolver service
	foreign  kind = "foreign app" // under a root of ours, in a trust domain that is not
	nobody   kind = "nobody"      // without a certificate, which takes identity.insecure
)

// The gRPC servers.
const (
	atResolver   = "resolver"   // listen.resolver
	atOperator   = "operator"   // listen.operator, which only this user may open
	atKubernetes = "kubernetes" // listen.kubernetes, for whom Kubernetes' RBAC lets in
	atConsole    = "console"    // within the process, for who listen.console has let in
	atGateway    = "gateway"    // the reserved name at listen.gateway
	// The reserved name there for clusters that are invited, whose roots are not known yet.
	atInvitation = "invitation"
)

// access says who may call which method where. A method without a line is for nobody.
// Handlers decide which app's view a sidecar may have: its own.
var access = map[string]map[string][]kind{
	atResolver: {
		v1alpha1.Resolver_Watch_FullMethodName:     {sidecar, operator, nobody},
		v1alpha1.Resolver_Resolve_FullMethodName:   {sidecar, operator, nobody},
		v1alpha1.Actors_Watch_FullMethodName:       {sidecar, operator, nobody},
		v1alpha1.Objects_Apply_FullMethodName:      {operator, nobody},
		v1alpha1.Objects_Get_FullMethodName:        {operator, nobody},
		v1alpha1.Objects_Delete_FullMethodName:     {operator, nobody},
		v1alpha1.Objects_History_FullMethodName:    {operator, nobody},
		v1alpha1.Objects_Analyze_FullMethodName:    {operator, nobody},
		v1alpha1.Status_Status_FullMethodName:      {operator, nobody},
		v1alpha1.Status_Check_FullMethodName:       {operator, nobody},
		v1alpha1.Status_Support_FullMethodName:     {operator, nobody},
		v1alpha1.Inventory_Apps_FullMethodName:     {operator, nobody},
		v1alpha1.Inventory_Sidecars_FullMethodName: {operator, nobody},
		v1alpha1.Inventory_Events_FullMethodName:   {operator, nobody},
		v1alpha1.Inventory_Probe_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Calls_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Graph_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Policies_FullMethodName: {operator, nobody},
		v1alpha1.Link_Invite_FullMethodName:        {operator, nobody},
		v1alpha1.Link_Follow_FullMethodName:        {operator, nobody},
		v1alpha1.Link_Accept_FullMethodName:        {operator, nobody},
		v1alpha1.Link_Confirm_FullMethodName:       {operator, nobody},
		v1alpha1.Link_Invitations_FullMethodName:   {operator, nobody},
		v1alpha1.Link_Revoke_FullMethodName:        {operator, nobody},
		v1alpha1.Link_Trust_FullMethodName:         {operator, nobody},
	},
	atOperator:   operatorsAlone(),
	atKubernetes: operatorsAlone(),
	atConsole:    operatorsAlone(),
	atGateway: {
		v1alpha1.Peering_Exports_FullMethodName: {peer},
		v1alpha1.Peering_Renew_FullMethodName:   {peer},
	},
	atInvitation: {v1alpha1.Linking_Meet_FullMethodName: {peer}},
}

// What Kubernetes' RBAC must allow who calls a method at listen.kubernetes.
const (
	mayRead  = "read"
	mayWrite = "write"
	mayLink  = "link"
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
	v1alpha1.Inventory_Policies_FullMethodName: mayRead,
	v1alpha1.Link_Invite_FullMethodName:        mayLink,
	v1alpha1.Link_Follow_FullMethodName:        mayLink,
	v1alpha1.Link_Accept_FullMethodName:        mayLink,
	v1alpha1.Link_Confirm_FullMethodName:       mayLink,
	v1alpha1.Link_Invitations_FullMethodName:   mayRead,
	v1alpha1.Link_Revoke_FullMethodName:        mayLink,
	v1alpha1.Link_Trust_FullMethodName:         mayRead,
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
	if verb == "" {
		return "", status.Errorf(codes.PermissionDenied, "%s is not for operators", serviceOf(method))
	}
	return verb, nil
}

// operatorsAlone lets operators call what verbs has, and nobody register.
func operatorsAlone() map[string][]kind {
	methods := map[string][]kind{v1alpha1.Resolver_Watch_FullMethodName: {}}
	for method := range verbs {
		methods[method] = []kind{operator}
	}
	return methods
}

// rules is a part of access.
type rules struct {
	listener string
	methods  map[string][]kind
	// admit tells who calls where that takes more than a certificate, in the context that it
	// returns; nil: it does not. The request is nil where it is not there yet.
	admit func(ctx context.Context, method string, request any) (context.Context, error)
}

func rulesAt(listener string) rules { return rules{listener: listener, methods: access[listener]} }

// forApps are the rules of an edge whose methods the apps of this cluster may call.
func forApps(edge string, methods []string) rules {
	r := rules{listener: edge, methods: map[string][]kind{}}
	for _, method := range methods {
		r.methods[method] = []kind{sidecar, operator, nobody}
	}
	return r
}

// authorizer holds calls to access.
type authorizer struct {
	cluster      string
	namespace    string   // of Isthmus' own apps
	trustDomains []string // whose apps are this cluster's, beside the service's own
	operators    []catalog.App
	identity     *identity.Source
	tracing      grpc.ServerOption
	log          *throttle.Log
}

// kindOf is what kind of caller makes a call.
func (a *authorizer) kindOf(ctx context.Context) (kind, identity.ID) {
	id, known := identity.FromContext(ctx)
	_, local := identity.FromLocal(ctx)
	if _, person := identity.FromPerson(ctx); local || person {
		return operator, id
	}
	_, isPeer := identity.FromPeer(ctx)
	cluster, isService := identity.ServiceCluster(a.namespace, id.App)
	switch {
	case !known:
		return nobody, id
	case isPeer, isService && cluster != a.cluster:
		return peer, id
	case !a.ownDomain(id.TrustDomain):
		return foreign, id
	case slices.Contains(a.operators, id.App):
		return operator, id
	default:
		return sidecar, id
	}
}

// domains are the trust domains whose apps are this cluster's.
func (a *authorizer) domains() []string {
	own, ok := a.identity.ID()
	if !ok {
		return a.trustDomains
	}
	return append([]string{own.TrustDomain}, a.trustDomains...)
}

// ownDomain tells whether apps of a trust domain are this cluster's.
func (a *authorizer) ownDomain(domain string) bool { return slices.Contains(a.domains(), domain) }

// checkAccess refuses a call that the rules do not allow.
func (a *authorizer) checkAccess(ctx context.Context, r rules, method string) error {
	kind, id := a.kindOf(ctx)
	if slices.Contains(r.methods[method], kind) {
		return nil
	}
	a.log.Warn("call "+id.String(), "refused a call", "listener", r.listener, "method", method, "caller", id.String(), "kind", string(kind))
	return status.Error(codes.PermissionDenied, a.refusal(kind, id, serviceOf(method)))
}

// refusal says why a caller may not call a service, and what to do.
func (a *authorizer) refusal(k kind, id identity.ID, service string) string {
	switch k {
	case foreign:
		own, _ := a.identity.ID()
		return fmt.Sprintf("%s is of another trust domain than cluster %s, which is %s; if its apps belong here, name it in isthmus.yaml of the service, identity.trustDomains",
			id, a.cluster, own.TrustDomain)
	case operator:
		return service + " is for sidecars; they connect to listen.resolver"
	case peer:
		return fmt.Sprintf("%s is the resolver service of another cluster; it may ask for exports through the gateway, and nothing else", id)
	case nobody:
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

// admit holds calls to rules.
func (a *authorizer) admit(r rules) []grpc.ServerOption {
	check := func(ctx context.Context, method string, request any) (_ context.Context, err error) {
		if r.admit != nil {
			if ctx, err = r.admit(ctx, method, request); err != nil {
				return nil, err
			}
		}
		return ctx, a.checkAccess(ctx, r, method)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			ctx, err := check(ctx, info.FullMethod, req)
			if err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			ctx, err := check(ss.Context(), info.FullMethod, nil)
			if err != nil {
				return err
			}
			if r.admit != nil {
				ss = streamWith{ss, ctx}
			}
			return handle(server, ss)
		}),
	}
}

// streamWith is a stream with another context.
type streamWith struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is that of [grpc.ServerStream].
func (s streamWith) Context() context.Context { return s.ctx }

// handshakeTimeout is how long a client may take to be known.
const handshakeTimeout = 5 * time.Second

// newServer makes a gRPC server whose calls are held to rules.
func (a *authorizer) newServer(r rules, creds credentials.TransportCredentials, more ...grpc.ServerOption) *grpc.Server {
	options := append(stream.ServerOptions(), grpc.Creds(creds), grpc.ConnectionTimeout(handshakeTimeout), a.tracing)
	options = append(options, a.admit(r)...)
	return grpc.NewServer(append(options, more...)...)
}

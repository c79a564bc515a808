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
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// kind is a kind of caller, by certificate.
type kind string

const (
	sidecar  kind = "sidecar"     // an app of this cluster
	operator kind = "operator"    // one that the configuration names, or at listen.operator
	peer     kind = "peer"        // another cluster's resolver service
	foreign  kind = "foreign app" // under a root of ours, in a trust domain that is not
	nobody   kind = "nobody"      // without a certificate, which takes identity.insecure
)

// The gRPC servers.
const (
	atResolver = "resolver" // listen.resolver
	atOperator = "operator" // listen.operator, which only this user may open
	atGateway  = "gateway"  // the reserved name at listen.gateway
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
		v1alpha1.Inventory_Apps_FullMethodName:     {operator, nobody},
		v1alpha1.Inventory_Sidecars_FullMethodName: {operator, nobody},
		v1alpha1.Inventory_Events_FullMethodName:   {operator, nobody},
		v1alpha1.Inventory_Probe_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Calls_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Graph_FullMethodName:    {operator, nobody},
		v1alpha1.Inventory_Policies_FullMethodName: {operator, nobody},
	},
	atOperator: {
		v1alpha1.Resolver_Watch_FullMethodName:     {}, // nothing registers here
		v1alpha1.Resolver_Resolve_FullMethodName:   {operator},
		v1alpha1.Actors_Watch_FullMethodName:       {operator},
		v1alpha1.Objects_Apply_FullMethodName:      {operator},
		v1alpha1.Objects_Get_FullMethodName:        {operator},
		v1alpha1.Objects_Delete_FullMethodName:     {operator},
		v1alpha1.Objects_History_FullMethodName:    {operator},
		v1alpha1.Objects_Analyze_FullMethodName:    {operator},
		v1alpha1.Status_Status_FullMethodName:      {operator},
		v1alpha1.Status_Check_FullMethodName:       {operator},
		v1alpha1.Inventory_Apps_FullMethodName:     {operator},
		v1alpha1.Inventory_Sidecars_FullMethodName: {operator},
		v1alpha1.Inventory_Events_FullMethodName:   {operator},
		v1alpha1.Inventory_Probe_FullMethodName:    {operator},
		v1alpha1.Inventory_Calls_FullMethodName:    {operator},
		v1alpha1.Inventory_Graph_FullMethodName:    {operator},
		v1alpha1.Inventory_Policies_FullMethodName: {operator},
	},
	atGateway: {
		v1alpha1.Peering_Exports_FullMethodName: {peer},
		v1alpha1.Peering_Renew_FullMethodName:   {peer},
	},
}

// rules is a part of access.
type rules struct {
	listener string
	methods  map[string][]kind
}

func rulesAt(listener string) rules { return rules{listener, access[listener]} }

// forApps are the rules of an edge whose methods the apps of this cluster may call.
func forApps(edge string, methods []string) rules {
	r := rules{edge, map[string][]kind{}}
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
	if _, local := identity.FromLocal(ctx); local {
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

// ownDomain tells whether apps of a trust domain are this cluster's.
func (a *authorizer) ownDomain(domain string) bool {
	own, ok := a.identity.ID()
	return ok && own.TrustDomain == domain || slices.Contains(a.trustDomains, domain)
}

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
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := a.checkAccess(ctx, r, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := a.checkAccess(ss.Context(), r, info.FullMethod); err != nil {
				return err
			}
			return handle(server, ss)
		}),
	}
}

// handshakeTimeout is how long a client may take to be known.
const handshakeTimeout = 5 * time.Second

// newServer makes a gRPC server whose calls are held to rules.
func (a *authorizer) newServer(r rules, creds credentials.TransportCredentials, more ...grpc.ServerOption) *grpc.Server {
	options := append(stream.ServerOptions(), grpc.Creds(creds), grpc.ConnectionTimeout(handshakeTimeout), a.tracing)
	options = append(options, a.admit(r)...)
	return grpc.NewServer(append(options, more...)...)
}

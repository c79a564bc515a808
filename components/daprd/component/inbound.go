package component

import (
	"context"
	"slices"
	"strings"

	daprmetadata "github.com/dapr/dapr/pkg/api/grpc/metadata"
	"github.com/dapr/dapr/pkg/diagnostics/consts"
	invoke "github.com/dapr/dapr/pkg/messaging/v1"
	internals "github.com/dapr/dapr/pkg/proto/internals/v1"
	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"github.com/spiffe/go-spiffe/v2/spiffegrpc/grpccredentials"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// tellUnary has a call say of its caller what is true, and nothing else.
func (c *Component) tellUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	in := c.inbound(ctx)
	ctx = in.clean(ctx, info.FullMethod, false)
	in.cleanMessage(request)
	return handler(ctx, request)
}

// tellStream also takes calls that daprd passes on as they are. For those there is no server.
func (c *Component) tellStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	in := c.inbound(stream.Context())
	err := handler(server, &cleanStream{stream, in.clean(stream.Context(), info.FullMethod, server == nil), in})
	if err == nil && in.certificate != "" && !c.piped.Load() {
		c.untold.Do(func() {
			c.log.Warn("the app is not told of its caller's certificate, though tellCaller asks for it; add middleware.http.isthmus.caller to the appHttpPipeline of its Configuration")
		})
	}
	return err
}

// cleanStream is a call as daprd's handlers see it.
type cleanStream struct {
	grpc.ServerStream
	ctx context.Context
	in  *inbound
}

func (s *cleanStream) Context() context.Context { return s.ctx }

func (s *cleanStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.in.cleanMessage(m)
	}
	return err
}

// inbound is one call that comes in, and what is true of its caller.
type inbound struct {
	self   catalog.App
	peer   bool // by another sidecar, which a certificate names
	own    bool // by the app itself, over daprd's API; if neither, nobody knows: calls are plain text
	bridge bool // between an app and a bridge for actors
	grpc   bool // to an app that speaks gRPC

	values      [len(told)]string // of told; empty: not told
	certificate string            // the caller's, for the middleware to tell
}

// inbound reads who makes a call.
func (c *Component) inbound(ctx context.Context) *inbound {
	in := &inbound{self: c.Self, grpc: c.App != nil && c.App.grpc}
	_, in.bridge = c.Self.BridgeCluster()
	p, overGRPC := peer.FromContext(ctx)
	if overGRPC {
		if id, ok := grpccredentials.PeerIDFromPeer(p); ok {
			in.peer = true
			if named, err := identity.FromSPIFFE(id); err == nil {
				in.values[toldApp], in.values[toldNamespace] = named.App.ID, named.App.Namespace
				if _, bridge := named.App.BridgeCluster(); bridge {
					in.bridge = true
				}
				c.describe(ctx, in, named)
			}
			return in
		}
		if c.PlainText {
			return in
		}
	}
	in.own = true
	in.values[toldApp], in.values[toldNamespace] = c.Self.ID, c.Self.Namespace
	return in
}

// describe has a call tell of its caller's certificate, where the app asks for it.
func (c *Component) describe(ctx context.Context, in *inbound, caller identity.ID) {
	g := c.guard.Load()
	if g == nil || !g.tells {
		return
	}
	cluster := ""
	if g.of != nil {
		cluster = g.caller(ctx).Home()
	}
	told := identity.DescribeCaller(caller, cluster)
	if c.App != nil && !c.App.grpc {
		in.certificate = told
	} else {
		in.values[toldCertificate] = told
	}
}

// isForged tells whether a header has no place in the call.
func (in *inbound) isForged(name string) bool {
	return isReserved(name) && !(in.bridge && len(name) >= len(bridged) && strings.EqualFold(name[:len(bridged)], bridged))
}

// keeps tells whether a header that names the caller stays: daprd's own, where nobody knows better.
func (in *inbound) keeps(name string) bool {
	return !in.peer && !in.own && (name == invoke.CallerIDHeader || name == invoke.CallerNamespaceHeader)
}

// clean cleans a call's metadata.
func (in *inbound) clean(ctx context.Context, method string, proxied bool) context.Context {
	md, ok := daprmetadata.FromIncomingContext(ctx) // the call's own copy, which daprd reads, too
	if !ok {
		return ctx
	}
	to := callee(md)
	for name, values := range md {
		switch {
		case in.keeps(name) && len(values) > 0:
			md[name] = values[len(values)-1:] // the others are of the caller's app
		case in.isForged(name):
			delete(md, name)
		}
	}
	local := false
	if proxied && to != "" {
		local = in.route(md, to)
		cleanTrace(ctx, md, local)
	}
	if in.peer || local || method == runtime.Dapr_InvokeService_FullMethodName {
		for i, name := range told {
			if in.values[i] != "" {
				md[name] = in.values[i : i+1 : i+1]
			}
		}
	}
	return metadata.NewIncomingContext(ctx, md)
}

// callee is the app that daprd passes a proxied call on to, as the metadata names it.
func callee(md metadata.MD) string {
	for _, name := range []string{consts.GRPCProxyCalleeIDKey, consts.GRPCProxyAppIDKey} {
		if values := md[name]; len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// takes tells whether a callee, as metadata name it, is an app.
func takes(app catalog.App, callee string) bool {
	id, namespace, _ := strings.Cut(callee, ".")
	return id == app.ID && (namespace == "" || namespace == app.Namespace)
}

// route names the callee of a proxied call once. It tells whether that is this sidecar's app.
func (in *inbound) route(md metadata.MD, to string) (local bool) {
	local = takes(in.self, to)
	name := consts.GRPCProxyCalleeIDKey // of calls between sidecars
	switch {
	case in.own:
		name = consts.GRPCProxyAppIDKey // daprd adds the other one
	case local:
		to = in.self.ID
	}
	delete(md, consts.GRPCProxyAppIDKey)
	md[name] = []string{to}
	return local
}

// cleanMessage cleans the headers of an app that a message of daprd's own carries.
func (in *inbound) cleanMessage(m any) {
	switch m := m.(type) {
	case *internals.InternalInvokeRequest:
		if m.Metadata == nil {
			m.Metadata = map[string]*internals.ListStringValue{}
		}
		in.cleanCarried(m.GetMetadata())
	case *internals.InternalInvokeRequestStream:
		if headers := m.GetRequest().GetMetadata(); headers != nil { // of the first message
			in.cleanCarried(headers)
		}
	case *runtime.InvokeActorRequest:
		for name := range m.GetMetadata() {
			if in.isForged(name) {
				delete(m.GetMetadata(), name)
			}
		}
	}
}

func (in *inbound) cleanCarried(headers map[string]*internals.ListStringValue) {
	for name, values := range headers {
		switch all := values.GetValues(); {
		case len(all) == 0: // daprd would take the first without a look
			delete(headers, name)
		case in.keeps(name):
			values.Values = all[len(all)-1:]
		case in.isForged(name):
			delete(headers, name)
		case strings.EqualFold(name, "connection"): // daprd leaves out the headers that it names
			cleanConnection(all)
		}
	}
	lists := make([]internals.ListStringValue, len(told)+1)
	for i, name := range told {
		if in.values[i] != "" {
			lists[i].Values = in.values[i : i+1 : i+1]
			headers[name] = &lists[i]
		}
	}
	if in.grpc {
		headers[passed] = &internals.ListStringValue{Values: []string{secret}}
	}
	if in.self.ID != "" {
		lists[len(told)].Values = []string{in.self.ID}
		headers[invoke.CalleeIDHeader] = &lists[len(told)]
	}
}

func cleanConnection(values []string) {
	for i, value := range values {
		names := slices.DeleteFunc(strings.Split(value, ","), func(name string) bool { return isReserved(strings.TrimSpace(name)) })
		values[i] = strings.Join(names, ",")
	}
}

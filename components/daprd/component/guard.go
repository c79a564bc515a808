package component

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/dapr/components-contrib/middleware"
	daprmetadata "github.com/dapr/dapr/pkg/api/grpc/metadata"
	pipeline "github.com/dapr/dapr/pkg/components/middleware/http"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	daprmiddleware "github.com/dapr/dapr/pkg/middleware"
	"github.com/dapr/kit/logger"
	"github.com/spiffe/go-spiffe/v2/spiffegrpc/grpccredentials"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// guard finds the caller of a call by its certificate. Calls of other sidecars come by the
// interceptors of [Component.RegisterInterceptors].
type guard struct {
	self      catalog.App
	port      int                   // of daprd's internal server
	of        *nameresolution.Guard // nil without a resolver service
	tells     bool                  // the app of its caller's certificate
	plainText bool

	known sync.Map // of spiffeid.ID to *nameresolution.Caller
	size  atomic.Int32
}

// maxKnown is how many certificates' names are kept with their callers. Beyond, all are forgotten.
const maxKnown = 4096

var errNoGuard error = &catalog.Refusal{Outcome: catalog.NotReady, Reason: "middleware.http.isthmus needs name resolution by isthmus with a resolver service, which tells who may call; set spec.nameResolution of the Configuration, with resolver, or take the middleware out of its appHttpPipeline"}

// fromSidecar tells whether a context is that of another sidecar's call, and its SPIFFE ID. Calls of
// the app itself come with no certificate, and to another server of daprd's.
func (g *guard) fromSidecar(ctx context.Context) (id spiffeid.ID, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return id, false
	}
	if id, ok = grpccredentials.PeerIDFromPeer(p); ok {
		return id, true
	}
	at, ok := p.LocalAddr.(*net.TCPAddr)
	return id, ok && g.plainText && at.Port == g.port
}

// caller returns who makes a call; nil if no other sidecar does.
func (g *guard) caller(ctx context.Context) *nameresolution.Caller {
	id, ok := g.fromSidecar(ctx)
	switch {
	case !ok:
		return nil
	case id.IsZero():
		return g.of.Unknown()
	}
	if c, ok := g.known.Load(id); ok {
		return c.(*nameresolution.Caller)
	}
	return g.remember(id)
}

func (g *guard) remember(id spiffeid.ID) *nameresolution.Caller {
	named, err := identity.FromSPIFFE(id)
	if err != nil {
		return g.of.Unknown()
	}
	if g.size.Add(1) > maxKnown {
		g.known.Clear()
		g.size.Store(1)
	}
	c := g.of.Caller(catalog.Principal{Domain: named.TrustDomain, App: named.App})
	g.known.Store(id, c)
	return c
}

// relay refuses a lookup for another sidecar's call, which is meant for another app. daprd would pass
// the call on with this sidecar's own certificate. Only gRPC that is proxied gets here.
func (g *guard) relay(ctx context.Context, to catalog.App) error {
	if _, ok := g.fromSidecar(ctx); !ok {
		return nil
	}
	in, _ := ctx.Value(callKey{}).(*call)
	return g.relayed(in, to.String())
}

// passesOn is relay for a proxied call before daprd sees it: for a callee that is a URL it makes no lookup.
func (g *guard) passesOn(ctx context.Context, in *call) error {
	md, _ := daprmetadata.FromIncomingContext(ctx) // the copy that daprd reads, too
	to := callee(md)
	if _, ok := g.fromSidecar(ctx); !ok || to == "" || takes(g.self, to) {
		return nil
	}
	return g.relayed(in, to)
}

// relayed refuses a call, if it is known, that is meant for another app.
func (g *guard) relayed(in *call, to string) error {
	if in != nil && in.relayed.CompareAndSwap(false, true) { // daprd may ask twice
		in.caller.Relayed(to)
	}
	return status.Errorf(codes.PermissionDenied, "denied: the sidecar of %s takes calls to %s alone, and passes none on to %s; call that app through your own sidecar",
		g.self, g.self, catalog.Printable(to))
}

func notReady(err error) bool {
	var refusal *catalog.Refusal
	return errors.As(err, &refusal) && refusal.Outcome == catalog.NotReady
}

// mark names the caller in the call's span, if there is one.
func mark(ctx context.Context, c *nameresolution.Caller) {
	if span := utils.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("isthmus.caller", c.App.String()), attribute.String("isthmus.caller.cluster", c.Cluster()))
	}
}

// RegisterGuard adds the middleware "middleware.http.isthmus" to Dapr's. In the appHttpPipeline it
// refuses calls while there is no guard: where name resolution by isthmus has not started. It also
// does what [Component.RegisterCaller] tells.
func (c *Component) RegisterGuard(to *pipeline.Registry) {
	to.RegisterComponent(func(logger.Logger) pipeline.FactoryMethod {
		return func(middleware.Metadata) (daprmiddleware.HTTP, error) { return c.guarded, nil }
	}, Name)
}

// guarded is the middleware. The guard has seen the call before, unless there is none.
func (c *Component) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.cleanRequest(r)
		g := c.guard.Load()
		if _, called := peer.FromContext(r.Context()); called && (g == nil || g.of == nil) {
			response, body := refusedResponse(errNoGuard)
			w.Header().Set("Content-Type", response.GetMessage().GetContentType())
			w.WriteHeader(int(response.GetStatus().GetCode()))
			_, _ = w.Write(body) // the caller may have gone
			return
		}
		next.ServeHTTP(w, r)
	})
}

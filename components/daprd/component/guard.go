package component

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dapr/components-contrib/middleware"
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

// guard finds the caller of a call by its certificate. Calls come by two ways: those of an HTTP app
// through the middleware, and proxied gRPC through the resolver, which daprd asks for its own app.
type guard struct {
	of        *nameresolution.Guard // nil without a resolver service
	plainText bool

	known sync.Map // of spiffeid.ID to *nameresolution.Caller
	size  atomic.Int32
}

// maxKnown is how many certificates' names are kept with their callers. Beyond, all are forgotten.
const maxKnown = 4096

var errNoGuard = errors.New("middleware.http.isthmus needs name resolution by isthmus with a resolver service, which tells who may call; set spec.nameResolution of the Configuration, with resolver, or take the middleware out of its appHttpPipeline")

// caller returns who makes a call. It is nil for the app itself and for its own sidecar, whose calls
// come with no certificate; from elsewhere that is possible only where mTLS is off.
func (g *guard) caller(ctx context.Context) *nameresolution.Caller {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	id, ok := grpccredentials.PeerIDFromPeer(p)
	if !ok {
		if g.plainText {
			return g.of.Unknown()
		}
		return nil
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

// admitProxied lets a proxied gRPC call in, or returns its gRPC status.
func (g *guard) admitProxied(ctx context.Context) error {
	if g == nil || g.of == nil {
		return nil
	}
	c := g.caller(ctx)
	if c == nil {
		return nil
	}
	mark(ctx, c)
	// daprd asks twice for each call.
	err := c.AdmitHalf(ctx)
	if err == nil {
		return nil
	}
	code := codes.PermissionDenied
	if notReady(err) {
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
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
// guards an app that is called by HTTP, and does what [Component.RegisterCaller] tells.
func (c *Component) RegisterGuard(to *pipeline.Registry) {
	to.RegisterComponent(func(logger.Logger) pipeline.FactoryMethod {
		return func(middleware.Metadata) (daprmiddleware.HTTP, error) { return c.guarded, nil }
	}, Name)
}

// guarded is the middleware.
func (c *Component) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.cleanRequest(r)
		g := c.guard.Load()
		if _, called := peer.FromContext(r.Context()); !called {
			next.ServeHTTP(w, r) // the sidecar's own call: its configuration, health and the like
			return
		}
		if g == nil || g.of == nil {
			refuse(w, errNoGuard, true)
			return
		}
		caller := g.caller(r.Context())
		if caller == nil {
			next.ServeHTTP(w, r)
			return
		}
		mark(r.Context(), caller)
		if err := caller.Admit(r.Context()); err != nil {
			refuse(w, err, notReady(err))
			return
		}
		start := time.Now()
		next.ServeHTTP(w, r)
		caller.Took(time.Since(start))
	})
}

// refuse answers a call as Dapr's API answers errors.
func refuse(w http.ResponseWriter, err error, temporary bool) {
	code, name := http.StatusForbidden, "ERR_ISTHMUS_DENIED"
	if temporary {
		code, name = http.StatusServiceUnavailable, "ERR_ISTHMUS_NOT_READY"
	}
	body, _ := json.Marshal(map[string]string{"errorCode": name, "message": err.Error()}) // of texts: no error
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the caller may have gone
}

package component

import (
	"net/http"

	"github.com/dapr/components-contrib/middleware"
	pipeline "github.com/dapr/dapr/pkg/components/middleware/http"
	daprmiddleware "github.com/dapr/dapr/pkg/middleware"
	"github.com/dapr/kit/logger"
	"github.com/spiffe/go-spiffe/v2/spiffegrpc/grpccredentials"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/identity"
)

// RegisterCaller adds the middleware "middleware.http.isthmus.caller" to Dapr's. In the
// appHttpPipeline it tells the app who makes a call, by the caller's certificate: the bridge for
// actors decides by it. It refuses nothing.
func RegisterCaller(to *pipeline.Registry) {
	to.RegisterComponent(func(logger.Logger) pipeline.FactoryMethod {
		return func(middleware.Metadata) (daprmiddleware.HTTP, error) { return tellCaller, nil }
	}, Name+".caller")
}

// tellCaller is the middleware.
func tellCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(identity.CallerHeader)
		if p, ok := peer.FromContext(r.Context()); ok {
			if id, ok := grpccredentials.PeerIDFromPeer(p); ok {
				r.Header.Set(identity.CallerHeader, id.String())
			}
		}
		next.ServeHTTP(w, r)
	})
}

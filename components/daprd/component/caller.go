package component

import (
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dapr/components-contrib/middleware"
	pipeline "github.com/dapr/dapr/pkg/components/middleware/http"
	invoke "github.com/dapr/dapr/pkg/messaging/v1"
	daprmiddleware "github.com/dapr/dapr/pkg/middleware"
	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"github.com/dapr/dapr/pkg/security"
	"github.com/dapr/kit/logger"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// What an app is told of its caller.
const (
	toldApp = iota
	toldNamespace
	toldCertificate // where the app asks for it
)

// told are the headers in which it is told. A caller can't send them.
var told = [...]string{
	toldApp: invoke.CallerIDHeader, toldNamespace: invoke.CallerNamespaceHeader,
	toldCertificate: strings.ToLower(identity.CallerHeader),
}

// reserved are the beginnings of all headers that say who calls, or whom.
var reserved = [...]string{"dapr-caller-", "dapr-callee-", "isthmus-"}

// bridged begins the headers by which bridges for actors talk with each other, and with actors.
const bridged = "isthmus-actor-"

// passed is the header of a call to a gRPC app that has come by the interceptors. daprd keeps nothing
// else of such a call. Its value is a secret of this process.
const passed = "isthmus-told"

var secret = rand.Text()

// isReserved tells whether an app could take a header for one that says who calls. Frameworks
// ignore case, and many make one character of all that are no letter or digit. A peer's own program
// can send names with other than ASCII, of which daprd makes ASCII: of 'İ' a small i.
func isReserved(name string) bool {
	return slices.ContainsFunc(reserved[:], func(prefix string) bool {
		if len(name) < len(prefix) {
			return false
		}
		for i := range len(prefix) {
			b := name[i]
			switch {
			case 'A' <= b && b <= 'Z':
				b += 'a' - 'A'
			case 'a' <= b && b <= 'z' || '0' <= b && b <= '9':
			case b >= utf8.RuneSelf:
				return true
			default:
				b = '-'
			}
			if b != prefix[i] {
				return false
			}
		}
		return true
	})
}

// SelfFromArgs is the app that daprd's arguments, and its environment, name.
func SelfFromArgs(args []string) catalog.App {
	flags := daprdFlags()
	id := flags.String("app-id", "", "")
	_ = flags.Parse(doubleDashes(args)) // daprd reports the mistake
	return catalog.App{Namespace: security.CurrentNamespace(), ID: *id}
}

// RegisterCaller adds the middleware "middleware.http.isthmus.caller" to Dapr's. In the
// appHttpPipeline it keeps the caller's headers true for requests over no connection of a peer: the
// app's own calls of itself, and messages. It refuses nothing.
func (c *Component) RegisterCaller(to *pipeline.Registry) {
	to.RegisterComponent(func(logger.Logger) pipeline.FactoryMethod {
		return func(middleware.Metadata) (daprmiddleware.HTTP, error) { return c.tellCaller, nil }
	}, Name+".caller")
}

// DialOptions returns the interceptor of daprd's calls to a gRPC app.
func (c *Component) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasPrefix(method, "/dapr.proto.runtime.v1.AppCallback") {
			md, _ := metadata.FromOutgoingContext(ctx) // a copy
			ctx = metadata.NewOutgoingContext(ctx, c.cleanCallback(md, method == runtime.AppCallback_OnInvoke_FullMethodName))
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})}
}

// cleanCallback cleans the headers of such a call. Those of peers are clean. All others are of a
// message, or of the app, which invokes itself over daprd's API.
func (c *Component) cleanCallback(md metadata.MD, invoked bool) metadata.MD {
	if marks := md[passed]; invoked && len(marks) == 1 && marks[0] == secret {
		delete(md, passed)
		return md
	}
	maps.DeleteFunc(md, func(name string, _ []string) bool { return isReserved(name) })
	if invoked {
		md = metadata.Join(md, metadata.Pairs(told[toldApp], c.Self.ID, told[toldNamespace], c.Self.Namespace, invoke.CalleeIDHeader, c.Self.ID))
	}
	return md
}

// tellCaller is the middleware.
func (c *Component) tellCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.cleanRequest(r)
		next.ServeHTTP(w, r)
	})
}

// cleanRequest does it for a request to the app. Those of peers are clean: they have come by the
// interceptors. An HTTP app hears of a certificate here alone. So none hears of it that could take a
// message's header for that.
func (c *Component) cleanRequest(r *http.Request) {
	c.piped.Store(true)
	in := c.inbound(r.Context())
	if in.certificate != "" {
		r.Header.Set(identity.CallerHeader, in.certificate)
	}
	if !in.own {
		return
	}
	for name := range r.Header {
		if in.isForged(name) {
			delete(r.Header, name)
		}
	}
	// daprd's own requests, such as those with messages, have come by none of its servers.
	_, overGRPC := peer.FromContext(r.Context())
	if overGRPC || r.Context().Value(http.ServerContextKey) != nil {
		for i, name := range told {
			if in.values[i] != "" {
				r.Header.Set(name, in.values[i])
			}
		}
		r.Header.Set(invoke.CalleeIDHeader, in.self.ID)
	}
}

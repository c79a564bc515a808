package authz

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Admit names the caller where a certificate is not enough, and refuses one without the right that
// the call takes: read, write or link. A stream asks again now and then whether it may go on; a nil
// function says that it may.
type Admit func(ctx context.Context, verb string) (name string, again func(context.Context) error, err error)

// askEvery is how often a stream asks again.
const askEvery = time.Minute

// Rules say who may call which methods of one server.
type Rules struct {
	listener string
	methods  map[string][]Kind
	admit    Admit         // nil: certificates tell
	every    time.Duration // how often a stream asks again
}

// At are the rules of one of the service's own servers, such as [AtResolver].
func At(listener string) Rules { return Rules{listener: listener, methods: access[listener]} }

// ForApps are the rules of an edge whose methods the apps of this cluster may call.
func ForApps(edge string, methods []string) Rules {
	r := Rules{listener: edge, methods: map[string][]Kind{}}
	for _, method := range methods {
		r.methods[method] = []Kind{Sidecar, Operator, Nobody}
	}
	return r
}

// For lets people in as operators.
func (r Rules) For(admit Admit) Rules {
	r.admit, r.every = admit, askEvery
	return r
}

// Kinds are the kinds of callers that a method is for. Of a method that the server does not have,
// it is nil.
func (r Rules) Kinds(method string) []Kind { return r.methods[method] }

// NewServer makes a gRPC server whose calls are held to rules.
func (a *Authorizer) NewServer(r Rules, creds credentials.TransportCredentials, more ...grpc.ServerOption) *grpc.Server {
	options := append([]grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			ctx, err := a.check(ctx, r, info.FullMethod, req)
			if err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			ctx, err := a.check(ss.Context(), r, info.FullMethod, nil)
			if err != nil {
				return err
			}
			if r.admit != nil {
				ss = streamWith{ss, ctx}
			}
			return handle(server, ss)
		}),
	}, a.Options...)
	return grpc.NewServer(append(options, more...)...)
}

// check refuses a call that the rules do not allow. Its context tells who calls. The request is nil
// where it is not there yet, as that of a stream.
func (a *Authorizer) check(ctx context.Context, r Rules, method string, request any) (context.Context, error) {
	if r.admit == nil {
		return ctx, a.checkAccess(ctx, r, method)
	}
	verb, err := verbOf(method, request)
	if err != nil {
		return nil, err
	}
	name, again, err := r.admit(ctx, verb)
	if err != nil {
		a.Log.Warn(r.listener+" "+name+status.Code(err).String()+verb, "refused a call", "listener", r.listener, "method", method, "caller", name, "err", status.Convert(err).Message())
		return nil, err
	}
	ctx = identity.WithPerson(ctx, name)
	if request == nil && again != nil {
		stream, end := context.WithCancelCause(ctx)
		go askAgain(stream, r.every, again, end)
		ctx = stream
	}
	return ctx, a.checkAccess(ctx, r, method)
}

// askAgain ends a stream whose caller may not have it any more. It ends with the stream.
func askAgain(stream context.Context, every time.Duration, again func(context.Context) error, end func(error)) {
	defer end(nil)
	for live.Sleep(stream, every) {
		if err := again(stream); err != nil && stream.Err() == nil {
			end(err)
		}
	}
}

// streamWith is a stream with another context.
type streamWith struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is that of [grpc.ServerStream].
func (s streamWith) Context() context.Context { return s.ctx }

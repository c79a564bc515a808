package component

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	common "github.com/dapr/dapr/pkg/proto/common/v1"
	internals "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// call is a call of another sidecar. It is in the context of whatever daprd does for it.
type call struct {
	caller  *nameresolution.Caller
	done    func()
	relayed atomic.Bool // refused and counted, since it is meant for another app
}

type callKey struct{}

// open lets a call in. The call is nil for one that is not of another sidecar, and without a guard.
func (c *Component) open(ctx context.Context) (context.Context, *call, error) {
	g := c.guard.Load()
	if g == nil || g.of == nil {
		return ctx, nil, nil
	}
	caller := g.caller(ctx)
	if caller == nil {
		return ctx, nil, nil
	}
	mark(ctx, caller)
	ctx, done, err := caller.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	in := &call{caller: caller, done: done}
	return context.WithValue(ctx, callKey{}, in), in, nil
}

// ended is a call's result: why the guard ended the call, if it did.
func ended(ctx context.Context, err error) error {
	var refusal *catalog.Refusal
	if errors.As(context.Cause(ctx), &refusal) {
		return refusedStatus(refusal)
	}
	return err
}

// openActor is open for calls of this app's actors. Dapr lets each app of a namespace call them, and so
// does the guard.
func (c *Component) openActor(ctx context.Context) (context.Context, *call, error) {
	if g := c.guard.Load(); g != nil && g.of != nil {
		if caller := g.caller(ctx); caller != nil && caller.IsNeighbour() {
			return ctx, nil, nil
		}
	}
	return c.open(ctx)
}

// unary guards calls of actors, and those to this sidecar's app from sidecars of before Dapr had streams
// for them.
func (c *Component) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	open, invoked := c.openActor, false
	switch info.FullMethod {
	case internals.ServiceInvocation_CallLocal_FullMethodName:
		open, invoked = c.open, true
	case internals.ServiceInvocation_CallActor_FullMethodName, internals.ServiceInvocation_CallActorReminder_FullMethodName:
	default:
		return handler(ctx, req)
	}
	ctx, in, err := open(ctx)
	switch {
	case err != nil && !invoked:
		return nil, refusedStatus(err)
	case err != nil:
		response, body := refusedResponse(err)
		response.Message.Data = &anypb.Any{Value: body}
		return response, nil
	case in == nil:
		return handler(ctx, req)
	}
	defer in.done()
	start := time.Now()
	res, err := handler(ctx, req)
	err = ended(ctx, err)
	status, _ := Answer(res)
	in.count(ctx, err, status, time.Since(start))
	return res, err
}

// Answer reads what the sidecar of an HTTP app answers, for a dialer and for the guard.
func Answer(m any) (status int32, byGuard bool) {
	var answer *internals.InternalInvokeResponse
	switch m := m.(type) {
	case *internals.InternalInvokeResponseStream:
		answer = m.GetResponse()
	case *internals.InternalInvokeResponse:
		answer = m
	}
	return dial.ReadAnswer(answer.GetStatus().GetCode(), answer.GetHeaders())
}

// Header reads a header of a call's first message, for a dialer.
func Header(m any, name string) string {
	var request *internals.InternalInvokeRequest
	switch m := m.(type) {
	case *internals.InternalInvokeRequestStream:
		request = m.GetRequest()
	case *internals.InternalInvokeRequest:
		request = m
	}
	for key, list := range request.GetMetadata() {
		if values := list.GetValues(); len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}

// stream guards calls to this sidecar's app and its actors, and gRPC that is proxied: for this daprd has
// no service.
func (c *Component) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	open, invoked, proxied := c.open, false, srv == nil
	switch info.FullMethod {
	case internals.ServiceInvocation_CallLocalStream_FullMethodName:
		invoked = true
	case internals.ServiceInvocation_CallActorStream_FullMethodName:
		open = c.openActor
	default:
		if !proxied {
			return handler(srv, stream)
		}
	}
	ctx, in, err := open(stream.Context())
	switch {
	case err != nil && invoked:
		response, body := refusedResponse(err)
		return stream.SendMsg(&internals.InternalInvokeResponseStream{Response: response, Payload: &common.StreamPayload{Data: body}})
	case err != nil:
		return refusedStatus(err)
	}
	if in != nil {
		defer in.done()
	}
	if g := c.guard.Load(); proxied && g != nil {
		if err := g.passesOn(ctx, in); err != nil {
			return err
		}
	}
	if in == nil {
		return handler(srv, stream)
	}
	s := &serverStream{ServerStream: stream, ctx: ctx, start: time.Now()}
	err = ended(ctx, handler(srv, s))
	took := time.Duration(s.took.Load())
	if took == 0 {
		took = time.Since(s.start)
	}
	in.count(ctx, err, s.status.Load(), took)
	return err
}

// count counts how a call ended that was let in; status is that of an HTTP app's answer.
func (c *call) count(ctx context.Context, err error, answered int32, took time.Duration) {
	end, name := traffic.OfCode(status.Code(err)), ""
	switch {
	case end != traffic.OK:
		name = status.Code(err).String()
	case traffic.OfHTTP(answered) != traffic.OK:
		end, name = traffic.OfHTTP(answered), dial.HTTPCode(answered)
	case took >= traffic.SlowAfter:
		end = traffic.Late
	}
	c.caller.Ended(ctx, end, name, took)
}

// serverStream is a stream of a call that was let in.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context

	start  time.Time
	took   atomic.Int64 // until the first message, which the app answered; 0 before
	status atomic.Int32 // of that, where it is an HTTP app's
}

// Context returns a context that ends when the guard ends the call.
func (s *serverStream) Context() context.Context { return s.ctx }

// SendMsg is called by one goroutine at a time.
func (s *serverStream) SendMsg(m any) error {
	if s.took.CompareAndSwap(0, int64(max(1, time.Since(s.start)))) {
		status, _ := Answer(m)
		s.status.Store(status)
	}
	return s.ServerStream.SendMsg(m)
}

// refusedStatus is how a proxied call is refused.
func refusedStatus(err error) error {
	code := codes.PermissionDenied
	if notReady(err) {
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// refusedResponse is how other calls are refused: as an answer of the app, in the form of an error of
// Dapr's API. By a status of gRPC the caller's daprd would repeat a call that comes too early, and
// close its connection, and others' calls with it.
func refusedResponse(err error) (response *internals.InternalInvokeResponse, body []byte) {
	code, name := int32(http.StatusForbidden), "ERR_ISTHMUS_DENIED"
	if notReady(err) {
		code, name = http.StatusServiceUnavailable, "ERR_ISTHMUS_NOT_READY"
	}
	body, _ = json.Marshal(map[string]string{"errorCode": name, "message": err.Error()}) // of texts: no error
	return &internals.InternalInvokeResponse{
		Status:  &internals.Status{Code: code},
		Headers: map[string]*internals.ListStringValue{"Content-Type": {Values: []string{"application/json"}}, dial.RefusedHeader: {Values: []string{name}}},
		Message: &common.InvokeResponse{ContentType: "application/json"},
	}, body
}

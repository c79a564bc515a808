package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The methods of an app that speaks gRPC. Who takes and returns a StringValue; what it
// returns is a [Reply] in JSON. OnInvoke is Dapr's own: what callers invoke over HTTP.
const (
	whoMethod    = "/isthmus.sandbox.App/Who"
	invokeMethod = "/dapr.proto.runtime.v1.AppCallback/OnInvoke"
)

// grpc serves both methods, and takes its time for a call with "takes" in its metadata or
// its query. It refuses daprd's own questions to an app as unimplemented.
func (a *App) grpc() (serve func(net.Listener) error, stop func()) {
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		switch method {
		case whoMethod:
			var question wrapperspb.StringValue
			if err := stream.RecvMsg(&question); err != nil {
				return err
			}
			text, err := a.answer(stream.Context(), method, method, question.GetValue(), first(md, "takes"), md)
			if err != nil {
				return err
			}
			return stream.SendMsg(wrapperspb.String(string(text)))
		case invokeMethod:
			var request emptypb.Empty // as any message whose fields we read ourselves
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			in := readInvocation(request.ProtoReflect().GetUnknown())
			text, err := a.answer(stream.Context(), in.verb, "/"+in.method, in.method, in.query.Get("takes"), md)
			if err != nil {
				return err
			}
			var response emptypb.Empty
			response.ProtoReflect().SetUnknown(invoked(text))
			return stream.SendMsg(&response)
		}
		return status.Errorf(codes.Unimplemented, "this app has %s and %s only", whoMethod, invokeMethod)
	}))
	return server.Serve, server.Stop
}

func first(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// answer is the answer to a call, once it is due.
func (a *App) answer(ctx context.Context, verb, path, name, takes string, md metadata.MD) ([]byte, error) {
	a.begin(ctx, name, takes)
	reply := a.reply()
	reply.Method, reply.Path = verb, path
	for name, values := range md {
		reply.Header[name] = strings.Join(values, ", ")
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the answer: %v", err)
	}
	return text, nil
}

// invocation is what an app reads of Dapr's InvokeRequest.
type invocation struct {
	method, verb string
	query        url.Values
}

// verbs are those of Dapr's HTTPExtension.
var verbs = [...]string{"NONE", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// readInvocation reads dapr.proto.common.v1.InvokeRequest: Dapr's own code for it stays out
// of this module.
func readInvocation(message []byte) (in invocation) {
	fields(message, func(number protowire.Number, _ uint64, value []byte) {
		switch number {
		case 1:
			in.method = strings.TrimPrefix(string(value), "/")
		case 4:
			fields(value, func(number protowire.Number, n uint64, value []byte) {
				switch number {
				case 1:
					in.verb = verbs[min(n, uint64(len(verbs)-1))]
				case 2:
					in.query, _ = url.ParseQuery(string(value))
				}
			})
		}
	})
	return in
}

// fields goes through the fields of a message up to one that can't be read.
func fields(message []byte, field func(number protowire.Number, n uint64, value []byte)) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		all := protowire.ConsumeFieldValue(number, kind, message)
		if all < 0 {
			return
		}
		switch kind {
		case protowire.VarintType:
			n, _ := protowire.ConsumeVarint(message)
			field(number, n, nil)
		case protowire.BytesType:
			value, _ := protowire.ConsumeBytes(message)
			field(number, 0, value)
		}
		message = message[all:]
	}
}

// invoked is dapr.proto.common.v1.InvokeResponse: JSON in an Any without a type.
func invoked(text []byte) []byte {
	data := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), text)
	response := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), data)
	return protowire.AppendString(protowire.AppendTag(response, 2, protowire.BytesType), "application/json")
}

// Dial connects to the sidecar's gRPC API. The caller closes the connection.
func (d *Daprd) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+d.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return Dial(ctx, d.place, "tcp", address)
		}))
}

// Proxy calls another [App] that speaks gRPC, as its clients do that know nothing of
// Dapr but the app-id: over a connection to the sidecar's gRPC API. id is an app-id,
// or "app-id.namespace"; header may be nil.
func Proxy(ctx context.Context, conn *grpc.ClientConn, id string, header map[string]string) (*Reply, error) {
	return ProxyNamed(ctx, conn, id, "who", header)
}

// ProxyNamed is [Proxy] for a call that the app is to count by a name.
func ProxyNamed(ctx context.Context, conn *grpc.ClientConn, id, name string, header map[string]string) (*Reply, error) {
	md := metadata.New(header)
	md.Set("dapr-app-id", id)
	var answer wrapperspb.StringValue
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, md), whoMethod, wrapperspb.String(name), &answer); err != nil {
		return nil, fmt.Errorf("call %s over gRPC: %w", id, err)
	}
	reply := new(Reply)
	if err := json.Unmarshal([]byte(answer.GetValue()), reply); err != nil {
		return nil, fmt.Errorf("call %s over gRPC: answer %q: %w", id, answer.GetValue(), err)
	}
	return reply, nil
}

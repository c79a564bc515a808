package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// whoMethod is the one method of an app that speaks gRPC. It takes and returns a
// StringValue; what it returns is a [Reply] in JSON.
const whoMethod = "/isthmus.sandbox.App/Who"

// grpc serves whoMethod, and takes its time for a call with the metadata "takes". It
// refuses daprd's own questions to an app as unimplemented.
func (a *App) grpc(o AppOptions) (serve func(net.Listener) error, stop func()) {
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if method != whoMethod {
			return status.Errorf(codes.Unimplemented, "this app has %s only", whoMethod)
		}
		var question wrapperspb.StringValue
		if err := stream.RecvMsg(&question); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(stream.Context())
		if values := md.Get("takes"); len(values) > 0 {
			takes, _ := time.ParseDuration(values[0])
			time.Sleep(takes)
		}
		reply := a.reply(o)
		reply.Method = method
		for name, values := range md {
			reply.Header[name] = values[0]
		}
		text, err := json.Marshal(reply)
		if err != nil {
			return status.Errorf(codes.Internal, "encode the answer: %v", err)
		}
		return stream.SendMsg(wrapperspb.String(string(text)))
	}))
	return server.Serve, server.Stop
}

// Dial connects to the sidecar's gRPC API. The caller closes the connection.
func (d *Daprd) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(d.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
}

// Proxy calls another [App] that speaks gRPC, as its clients do that know nothing of
// Dapr but the app-id: over a connection to the sidecar's gRPC API. id is an app-id,
// or "app-id.namespace"; header may be nil.
func Proxy(ctx context.Context, conn *grpc.ClientConn, id string, header map[string]string) (*Reply, error) {
	md := metadata.New(header)
	md.Set("dapr-app-id", id)
	var answer wrapperspb.StringValue
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, md), whoMethod, wrapperspb.String("who"), &answer); err != nil {
		return nil, fmt.Errorf("call %s over gRPC: %w", id, err)
	}
	reply := new(Reply)
	if err := json.Unmarshal([]byte(answer.GetValue()), reply); err != nil {
		return nil, fmt.Errorf("call %s over gRPC: answer %q: %w", id, answer.GetValue(), err)
	}
	return reply, nil
}

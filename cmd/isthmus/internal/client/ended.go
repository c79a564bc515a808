package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// shows are the methods that write, and the command that shows what they have written.
var shows = map[string]string{
	v1alpha1.Objects_Apply_FullMethodName:  "isthmus get",
	v1alpha1.Objects_Delete_FullMethodName: "isthmus get",
	v1alpha1.Link_Invite_FullMethodName:    "isthmus link list",
	v1alpha1.Link_Accept_FullMethodName:    "isthmus link list",
	v1alpha1.Link_Confirm_FullMethodName:   "isthmus link list",
	v1alpha1.Link_Revoke_FullMethodName:    "isthmus link list",
}

// endedError is codes.Unavailable of a call that had a connection. Without one, nothing was asked.
type endedError struct {
	error         // gRPC's
	answered bool // the error is the other side's word; otherwise the connection ended without an answer
	method   string
}

// GRPCStatus is that of the error.
func (e endedError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// advice says how far the call may have come.
func (e endedError) advice() string {
	if show := shows[e.method]; show != "" {
		return "what it was told to write may have been written: " + show + " shows that"
	}
	return "ask it again"
}

// call notes how far a call comes.
type call struct {
	method          string
	peer            peer.Peer
	header, trailer metadata.MD
}

func (c *call) options(opts []grpc.CallOption) []grpc.CallOption {
	return append(opts, grpc.Peer(&c.peer), grpc.Header(&c.header), grpc.Trailer(&c.trailer))
}

func (c *call) explain(err error) error {
	if status.Code(err) != codes.Unavailable || c.peer.Addr == nil {
		return err
	}
	return endedError{err, len(c.header)+len(c.trailer) > 0, c.method}
}

// noting has the calls of a connection end with an endedError where they had one.
func noting() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			c := &call{method: method}
			return c.explain(invoke(ctx, method, req, reply, cc, c.options(opts)...))
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			c := &call{method: method}
			stream, err := begin(ctx, desc, cc, method, c.options(opts)...)
			return notedStream{stream, c}, c.explain(err)
		}),
	}
}

type notedStream struct {
	grpc.ClientStream
	call *call
}

// RecvMsg is that of [grpc.ClientStream].
func (s notedStream) RecvMsg(m any) error { return s.call.explain(s.ClientStream.RecvMsg(m)) }

package stream_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// verbatim is a codec that sends bytes unchanged, and reads nothing.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }
func (verbatim) Name() string                         { return "proto" }

// FuzzStream starts a stream with two messages of any bytes. The service may refuse them, and
// must still serve others.
func FuzzStream(f *testing.F) {
	s := start(f, stream.Config{HelloTimeout: time.Second}, "127.0.0.1:0", selection(checkout, orders))
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	for _, seed := range [][2]proto.Message{
		{helloOf(checkout, "10.0.0.1:50002"), drainRequest()},
		{resuming(checkout, &pb.WatchResponse{Revision: 7, Put: []*pb.ViewEntry{{App: &pb.App{Namespace: "x", Id: "y"}, Digest: 1}}}), drainRequest()},
		{drainRequest(), helloOf(orders, "")},
		{guarding(orders, []byte{1}), &pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: &pb.CallReport{Calls: []*pb.CallCount{{Caller: &pb.App{Namespace: "x", Id: "y"}, LetIn: 1}}}}}},
	} {
		one, _ := proto.Marshal(seed[0])
		two, _ := proto.Marshal(seed[1])
		f.Add(one, two)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		ctx, end := context.WithTimeout(t.Context(), patience)
		defer end()
		watch, err := conn.NewStream(ctx, &pb.Resolver_ServiceDesc.Streams[0], pb.Resolver_Watch_FullMethodName, grpc.ForceCodecV2(verbatim{}))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = watch.SendMsg(one), watch.SendMsg(two) // may come too late: the first was refused
		_ = watch.CloseSend()
		for err = nil; err == nil; {
			err = watch.RecvMsg(nil)
		}
		if ctx.Err() != nil {
			t.Fatal("the stream did not end, though the client has closed its side")
		}
		if _, err := pb.NewResolverClient(conn).Resolve(ctx, &pb.ResolveRequest{
			Caller: &pb.App{Namespace: "shop", Id: "checkout"}, App: &pb.App{Namespace: "shop", Id: "orders"},
		}); err != nil {
			t.Fatalf("the service is gone: %v", err)
		}
	})
}

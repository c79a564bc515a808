package client

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// A service that is killed may have done what it was told. One that was never reached has done nothing.
func TestAConnectionThatEndsIsNoneThatNeverWas(t *testing.T) {
	for _, c := range []struct {
		what   string
		answer error // of the service; nil: it is killed
		call   func(context.Context, *Conn) error
		want   string
	}{
		{"apply", nil, apply, "; what it was told to write may have been written: isthmus get shows that"},
		{"delete", nil, func(ctx context.Context, c *Conn) error {
			_, err := v1alpha1.NewObjectsClient(c).Delete(ctx, &v1alpha1.DeleteRequest{})
			return err
		}, "may have been written: isthmus get shows that"},
		{"accept, which is a stream", nil, func(ctx context.Context, c *Conn) error {
			stream, err := v1alpha1.NewLinkClient(c).Accept(ctx, &v1alpha1.AcceptRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, "may have been written: isthmus link list shows that"},
		{"get, which writes nothing", nil, func(ctx context.Context, c *Conn) error {
			_, err := v1alpha1.NewObjectsClient(c).Get(ctx, &v1alpha1.GetRequest{})
			return err
		}, "; ask it again"},
		{"the service's own word", status.Error(codes.Unavailable, "cluster east does not answer"), apply, "cluster east does not answer"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var server *grpc.Server
		server = grpc.NewServer(grpc.Creds(insecure.NewCredentials()), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if c.answer == nil {
				go server.Stop() // waits for this call, once its connection has ended
				<-stream.Context().Done()
			}
			return c.answer
		}))
		go func() { _ = server.Serve(l) }()
		conn, err := Dial(t.Context(), Options{Server: l.Addr().String(), Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		got := conn.Explain(c.call(t.Context(), conn)).Error()
		// A connection ends with EOF or, where something was not yet read of it, with a reset.
		if !strings.HasSuffix(got, c.want) || c.answer == nil && !strings.Contains(got, "before its answer: error reading from server: ") || strings.Contains(got, "not reached") || strings.Contains(got, "mTLS") {
			t.Errorf("%s: %s\nwant %s", c.what, got, c.want)
		}
		server.Stop()
		if got := conn.Explain(apply(t.Context(), conn)).Error(); c.answer == nil && (!strings.Contains(got, "not reached") || strings.Contains(got, "written")) {
			t.Errorf("%s, and nobody listens any more: %s", c.what, got)
		}
		conn.Close()
	}
}

func apply(ctx context.Context, c *Conn) error {
	_, err := v1alpha1.NewObjectsClient(c).Apply(ctx, &v1alpha1.ApplyRequest{})
	return err
}

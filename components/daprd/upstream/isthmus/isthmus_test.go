package isthmus

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/kit/logger"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestSettings(t *testing.T) {
	for name, tt := range map[string]struct {
		configuration map[string]string
		err           string // empty: none
	}{
		"plain text":            {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west", "insecure": "true"}, ""},
		"files":                 {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west", "certFile": "c", "keyFile": "k", "caFile": "a"}, ""},
		"nothing":               {nil, "resolver is missing"},
		"no cluster":            {map[string]string{"resolver": "127.0.0.1:7400", "insecure": "true"}, "cluster: "},
		"no identity":           {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west"}, "insecure: true"},
		"files and plain text":  {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west", "insecure": "true", "caFile": "a"}, "insecure: true"},
		"a file is missing":     {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west", "certFile": "c"}, "go together"},
		"a duration that isn't": {map[string]string{"resolver": "127.0.0.1:7400", "cluster": "west", "insecure": "true", "resolveTimeout": "soon"}, "resolveTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			err := s.read(tt.configuration)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 2*time.Second, s.ResolveTimeout)
			assert.Equal(t, "isthmus-system", s.ResolverNamespace)
		})
	}
}

// service answers each stream with what the test sends.
type service struct {
	pb.UnimplementedResolverServer
	hellos  chan *pb.Hello
	changes chan *pb.WatchResponse
}

func (s *service) Watch(stream pb.Resolver_WatchServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s.hellos <- first.GetHello()
	for {
		select {
		case change, ok := <-s.changes:
			if !ok {
				return nil // ends the stream
			}
			if err := stream.Send(change); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// started is a resolver of shop/checkout, and the service that it follows.
func started(t *testing.T) (nameresolution.Resolver, *service) {
	t.Helper()
	s := &service{hellos: make(chan *pb.Hello, 1), changes: make(chan *pb.WatchResponse)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterResolverServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	r := NewResolver(logger.NewLogger("test"))
	require.NoError(t, r.Init(t.Context(), nameresolution.Metadata{
		Instance:      nameresolution.Instance{AppID: "checkout", Namespace: "shop", Address: "127.0.0.1", DaprInternalPort: 50002},
		Configuration: map[string]string{"resolver": listener.Addr().String(), "cluster": "west", "insecure": "true"},
	}))
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, s
}

func put(app string, routes ...*pb.ViewRoute) *pb.WatchResponse {
	return &pb.WatchResponse{Revision: 7, Rule: "a rule", Put: []*pb.ViewEntry{{App: &pb.App{Namespace: "shop", Id: app}, Rule: "a rule", Routes: routes}}}
}

func local(addresses ...string) *pb.ViewRoute {
	return &pb.ViewRoute{Cluster: "west", Local: true, Weight: 1, State: pb.ViewRoute_STATE_READY, Ready: uint32(len(addresses)), Addresses: addresses}
}

func resolves(t *testing.T, r nameresolution.Resolver, app string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return r.ResolveID(ctx, nameresolution.ResolveRequest{Namespace: "shop", ID: app, Port: 50002})
}

func TestResolve(t *testing.T) {
	r, s := started(t)
	hello := <-s.hellos
	assert.Equal(t, "checkout", hello.GetApp().GetId())
	assert.Equal(t, "127.0.0.1:50002", hello.GetInstance().GetAddress())

	own, err := resolves(t, r, "checkout")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:50002", own)

	s.changes <- put("orders", local("10.0.0.1:50002", "10.0.0.2:50002"))
	seen := map[string]bool{}
	for range 10 {
		address, err := resolves(t, r, "orders")
		require.NoError(t, err)
		seen[address] = true
	}
	assert.Equal(t, map[string]bool{"10.0.0.1:50002": true, "10.0.0.2:50002": true}, seen)

	_, err = resolves(t, r, "ledger")
	require.ErrorContains(t, err, "denied")

	s.changes <- put("orders", &pb.ViewRoute{
		Cluster: "east", Weight: 1, Gateway: true, State: pb.ViewRoute_STATE_READY, Ready: 2, Addresses: []string{"orders.shop.east.isthmus.internal:15443"},
	})
	assert.Eventually(t, func() bool {
		address, err := resolves(t, r, "orders")
		return err == nil && address == "orders.shop.east.isthmus.internal:15443"
	}, 10*time.Second, time.Millisecond)
}

func TestTheLastViewServesWhileTheServiceIsAway(t *testing.T) {
	r, s := started(t)
	<-s.hellos
	s.changes <- put("orders", local("10.0.0.1:50002"))
	address, err := resolves(t, r, "orders")
	require.NoError(t, err)

	close(s.changes) // the stream ends, and so does each that follows
	again := <-s.hellos
	assert.Equal(t, uint64(7), again.GetRevision(), "of the view that it has")
	during, err := resolves(t, r, "orders")
	require.NoError(t, err)
	assert.Equal(t, address, during)
}

func TestBeforeTheFirstView(t *testing.T) {
	r, _ := started(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := r.ResolveID(ctx, nameresolution.ResolveRequest{Namespace: "shop", ID: "orders", Port: 50002})
	require.ErrorContains(t, err, "not ready")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

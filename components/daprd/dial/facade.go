package dial

import (
	"context"
	"errors"
	"strings"
	_ "unsafe" // for the hook

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Schemes are gRPC's resolvers that a standalone daprd and one in Kubernetes dial by.
func Schemes() []string { return []string{"passthrough", "dns"} }

// addGlobalDialOptions is gRPC's hook for options of every connection in the process, by
// which its own observability modules put their interceptors into connections that others
// make. daprd has no place for an interceptor.
//
//go:linkname addGlobalDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
var addGlobalDialOptions any

// Register wraps gRPC's resolvers for Schemes, and has calls by our names made by us. Call
// it once and before anything dials: gRPC's registry is not safe for concurrent use.
func (n *Names) Register() error {
	add, ok := addGlobalDialOptions.(func(...grpc.DialOption))
	if !ok {
		return errors.New("make calls by an app's plan: this version of gRPC has no hook for interceptors of all connections; build daprd with the version in go.mod")
	}
	for _, scheme := range Schemes() {
		stock := resolver.Get(scheme)
		if stock == nil {
			return errors.New("make calls by an app's plan: gRPC has no resolver " + scheme + " to wrap")
		}
		resolver.Register(n.Wrap(stock))
	}
	add(n.DialOptions()...)
	return nil
}

// DialOptions have the calls of a connection to one of our names made by us.
func (n *Names) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(n.unary), grpc.WithChainStreamInterceptor(n.stream)}
}

func (n *Names) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c := n.channelOf(cc); c != nil {
		return c.conn.Invoke(ctx, method, req, reply, opts...)
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func (n *Names) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c := n.channelOf(cc); c != nil {
		return c.conn.NewStream(ctx, desc, method, opts...)
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// Wrap returns a builder that answers our names and leaves all others to stock.
func (n *Names) Wrap(stock resolver.Builder) resolver.Builder { return &builder{stock, n} }

type builder struct {
	resolver.Builder
	names *Names
}

// Build is called for each connection that is dialled.
func (b *builder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	name, ok := b.names.given.Load(target.Endpoint())
	// A dialer of the caller's own expects the name, not what it stands for.
	if !ok || opts.Dialer != nil || opts.DialCreds == nil {
		return b.Builder.Build(target, cc, opts)
	}
	n := name.(*called)
	b.names.enter(n, opts.DialCreds)
	cc.ReportError(errors.New("calls to " + n.address + " are made by Isthmus, and this one passed by its interceptor"))
	return &facade{b.names, n}, nil
}

// called is an app by its name, with the connections that daprd made to it.
type called struct {
	app     catalog.App
	address string // "host:port", which daprd dials

	// Of Names.mu.
	creds credentials.TransportCredentials // daprd's, for this app; nil before the first connection
	conns map[*grpc.ClientConn]*channel
	free  []*channel // that a connection left
}

// facade is a connection that daprd made to one of our names. It never connects: its calls
// are made on a channel of ours. daprd closes a connection for all calls on it when one
// ends with Unavailable, and calls that go well elsewhere are not to end for that.
//
// To gRPC it is the connection's resolver.
type facade struct {
	names *Names
	to    *called
}

// ResolveNow is gRPC's hint that a connection failed.
func (f *facade) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called when daprd has closed the connection.
func (f *facade) Close() {
	f.names.mu.Lock()
	defer f.names.mu.Unlock()
	f.names.release(f.to)
}

// enter notes the credentials of a connection. Those of all to one app are alike.
func (n *Names) enter(to *called, creds credentials.TransportCredentials) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to.creds = creds
}

// claim gives a connection that has its first call a channel; nil where it is not to one of
// our names, or closed.
func (n *Names) claim(cc *grpc.ClientConn) *channel {
	prefix, address, ok := strings.Cut(cc.Target(), ":///")
	if !ok {
		address = cc.Target()
	}
	name, ours := n.given.Load(address)
	if !ours || ok && prefix == scheme { // a channel's own connection has the hook, too
		return nil
	}
	to := name.(*called)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(to)
	if c := to.conns[cc]; c != nil {
		return c
	}
	if to.creds == nil || cc.GetState() == connectivity.Shutdown {
		return nil
	}
	c, err := n.open(to)
	if err != nil {
		n.log.Error("a connection to an app can't be made; its calls fail", "app", to.app.String(), "err", err)
		return nil
	}
	to.conns[cc] = c
	n.conns.Store(cc, c)
	return c
}

// release lets go of the channels of connections that are closed. It wants the lock.
func (n *Names) release(to *called) {
	for cc, c := range to.conns {
		if cc.GetState() == connectivity.Shutdown {
			delete(to.conns, cc)
			n.conns.Delete(cc)
			n.leave(c)
		}
	}
}

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
func (d *Dialer) Register() error {
	add, ok := addGlobalDialOptions.(func(...grpc.DialOption))
	if !ok {
		return errors.New("make calls by an app's plan: this version of gRPC has no hook for interceptors of all connections; build daprd with the version in go.mod")
	}
	for _, scheme := range Schemes() {
		stock := resolver.Get(scheme)
		if stock == nil {
			return errors.New("make calls by an app's plan: gRPC has no resolver " + scheme + " to wrap")
		}
		resolver.Register(d.Wrap(stock))
	}
	add(d.DialOptions()...)
	return nil
}

// DialOptions have the calls of a connection to one of our names made by us.
func (d *Dialer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(d.unary), grpc.WithChainStreamInterceptor(d.stream)}
}

func (d *Dialer) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c := d.channelFor(cc); c != nil {
		return c.conn.Invoke(ctx, method, req, reply, opts...)
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func (d *Dialer) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c := d.channelFor(cc); c != nil {
		return c.conn.NewStream(ctx, desc, method, opts...)
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// Wrap returns a builder that answers our names and leaves all others to stock.
func (d *Dialer) Wrap(stock resolver.Builder) resolver.Builder { return &resolverBuilder{stock, d} }

type resolverBuilder struct {
	resolver.Builder
	dialer *Dialer
}

// Build is called for each connection that is dialled.
func (b *resolverBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	name, ok := b.dialer.byAddress.Load(target.Endpoint())
	// A dialer of the caller's own expects the name, not what it stands for.
	if !ok || opts.Dialer != nil || opts.DialCreds == nil {
		return b.Builder.Build(target, cc, opts)
	}
	n := name.(*callee)
	b.dialer.setCredentials(n, opts.DialCreds)
	cc.ReportError(errors.New("calls to " + n.address + " are made by Isthmus, and this one passed by its interceptor"))
	return &handle{b.dialer, n}, nil
}

// called is an app by its name, with the connections that daprd made to it.
type callee struct {
	app     catalog.App
	address string // "host:port", which daprd dials

	// Of Names.mu.
	creds credentials.TransportCredentials // daprd's, for this app; nil before the first connection
	conns map[*grpc.ClientConn]*channel
	idle  []*channel // that a connection left
}

// facade is a connection that daprd made to one of our names. It never connects: its calls
// are made on a channel of ours. daprd closes a connection for all calls on it when one
// ends with Unavailable, and calls that go well elsewhere are not to end for that.
//
// To gRPC it is the connection's resolver.
type handle struct {
	dialer *Dialer
	callee *callee
}

// ResolveNow is gRPC's hint that a connection failed.
func (h *handle) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called when daprd has closed the connection.
func (h *handle) Close() {
	h.dialer.mu.Lock()
	defer h.dialer.mu.Unlock()
	h.dialer.releaseClosed(h.callee)
}

// enter notes the credentials of a connection. Those of all to one app are alike.
func (d *Dialer) setCredentials(to *callee, creds credentials.TransportCredentials) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to.creds = creds
}

// claim gives a connection that has its first call a channel; nil where it is not to one of
// our names, or closed.
func (d *Dialer) bindChannel(cc *grpc.ClientConn) *channel {
	prefix, address, ok := strings.Cut(cc.Target(), ":///")
	if !ok {
		address = cc.Target()
	}
	name, ours := d.byAddress.Load(address)
	if !ours || ok && prefix == scheme { // a channel's own connection has the hook, too
		return nil
	}
	to := name.(*callee)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseClosed(to)
	if c := to.conns[cc]; c != nil {
		return c
	}
	if to.creds == nil || cc.GetState() == connectivity.Shutdown {
		return nil
	}
	c, err := d.acquireChannel(to)
	if err != nil {
		d.log.Error("a connection to an app can't be made; its calls fail", "app", to.app.String(), "err", err)
		return nil
	}
	to.conns[cc] = c
	d.byConn.Store(cc, c)
	return c
}

// release lets go of the channels of connections that are closed. It wants the lock.
func (d *Dialer) releaseClosed(to *callee) {
	for cc, c := range to.conns {
		if cc.GetState() == connectivity.Shutdown {
			delete(to.conns, cc)
			d.byConn.Delete(cc)
			d.releaseChannel(c)
		}
	}
}

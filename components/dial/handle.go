package dial

import (
	"context"
	"errors"
	"strings"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// Schemes returns the schemes that daprd dials by: standalone, and in Kubernetes.
func Schemes() []string { return []string{"passthrough", "dns"} }

// addGlobalDialOptions is gRPC's hook for dial options of every connection in the process. gRPC's
// own observability modules add their interceptors by it. daprd offers no place for ours.
//
//go:linkname addGlobalDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
var addGlobalDialOptions any

// ErrNoHook says that gRPC lacks the hook that this package was made for.
var ErrNoHook = errors.New("gRPC " + grpc.Version + " has no hook to add interceptors to every connection")

// AddToAll adds options to every connection of the process that is made from now on.
func AddToAll(options ...grpc.DialOption) error {
	add, ok := addGlobalDialOptions.(func(...grpc.DialOption))
	if !ok {
		return ErrNoHook
	}
	add(options...)
	return nil
}

// Register wraps gRPC's resolvers for Schemes, and adds the interceptors to every connection. Call it
// once and before anything dials: gRPC's registry is not safe for concurrent use. After an error
// nothing has changed.
func (d *Dialer) Register() error {
	var wrapped []resolver.Builder
	for _, scheme := range Schemes() {
		stock := resolver.Get(scheme)
		if stock == nil {
			return errors.New("gRPC " + grpc.Version + " has no resolver for the scheme " + scheme)
		}
		wrapped = append(wrapped, d.Wrap(stock))
	}
	if err := AddToAll(d.DialOptions()...); err != nil {
		return err
	}
	for _, w := range wrapped {
		resolver.Register(w)
	}
	return nil
}

// DialOptions returns the interceptors that take over the calls of connections to our names.
func (d *Dialer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(d.unary), grpc.WithChainStreamInterceptor(d.stream)}
}

func (d *Dialer) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, err := d.beginCall(cc)
	switch {
	case err != nil:
		return err
	case c == nil:
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	call, ctx, opts := c.makeCall(c.callee.rename(c.keyed(ctx, req)), method, opts)
	call.reply = reply
	return c.conn.Invoke(ctx, method, req, reply, opts...)
}

func (d *Dialer) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c, err := d.beginCall(cc)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return streamer(ctx, desc, cc, method, opts...)
	}
	open := func(ctx context.Context) (grpc.ClientStream, error) {
		call, ctx, opts := c.makeCall(c.callee.rename(ctx), method, opts)
		s, err := c.conn.NewStream(ctx, desc, method, opts...)
		if err != nil {
			return nil, err
		}
		return &countedStream{s, call}, nil
	}
	if keyed := c.keyed(ctx, nil); !c.awaitsMessage(method, keyed != ctx) {
		return open(keyed)
	}
	return newLazyStream(ctx, c, open), nil
}

// Wrap returns a resolver builder that answers our names and leaves all others to stock.
func (d *Dialer) Wrap(stock resolver.Builder) resolver.Builder { return &resolverBuilder{stock, d} }

type resolverBuilder struct {
	resolver.Builder
	dialer *Dialer
}

// Build is called by gRPC for each connection that is dialled.
func (b *resolverBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	found, ok := b.dialer.byAddress.Load(target.Endpoint())
	// A caller with a dialer of its own expects the name, so gRPC's resolver answers.
	if !ok || opts.Dialer != nil || opts.DialCreds == nil {
		return b.Builder.Build(target, cc, opts)
	}
	to := found.(*callee)
	b.dialer.setCredentials(to, opts.DialCreds)
	cc.ReportError(errors.New("Isthmus makes the calls to " + to.address + ", but this call bypassed its interceptor"))
	return &handle{b.dialer, to}, nil
}

// callee is an app with a name, and the connections that daprd made to it.
type callee struct {
	calleeKey
	dialer  *Dialer
	address string      // the name that daprd dials, as "host:port"
	counts  *callCounts // of the app

	// The fields below belong to Dialer.mu.
	creds credentials.TransportCredentials // daprd's, for this app; nil before the first connection
	conns map[*grpc.ClientConn]*channel
	idle  []*channel // without a handle
}

// renamed tells whether the caller calls the app by another name.
func (c *callee) renamed() bool { return c.name != c.app }

// The metadata by which daprd passes a proxied call on to an app.
var calleeMetadata = []string{"dapr-app-id", "dapr-callee-app-id"}

// rename has a proxied call name its app by the app's own name, as its sidecar wants it.
func (c *callee) rename(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !c.renamed() || !ok {
		return ctx
	}
	for _, key := range calleeMetadata {
		if len(md.Get(key)) > 0 {
			md.Set(key, c.app.ID)
		}
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// credentials are daprd's, or those for an app that has another name here. The caller holds
// Dialer.mu.
func (c *callee) credentials() (credentials.TransportCredentials, error) {
	if !c.renamed() || c.creds.Info().SecurityProtocol == plainText {
		return c.creds.Clone(), nil
	}
	return c.dialer.resolver.Load().Credentials(c.app)
}

// handle stands behind a connection that daprd made to one of our names, as its resolver. The
// connection never connects, and its calls run on a channel of ours. So they survive when daprd
// closes the connection: it does that to all calls on it when one ends with Unavailable.
type handle struct {
	dialer *Dialer
	callee *callee
}

// ResolveNow is gRPC's hint that a connection failed.
func (h *handle) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called by gRPC when daprd has closed the connection.
func (h *handle) Close() {
	h.dialer.mu.Lock()
	defer h.dialer.mu.Unlock()
	h.dialer.releaseClosed(h.callee)
}

// setCredentials keeps a connection's credentials. All connections to one app have the same.
func (d *Dialer) setCredentials(to *callee, creds credentials.TransportCredentials) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to.creds = creds
}

// beginCall counts a call in at the channel behind a connection of daprd's. The channel is nil if
// the connection is not to one of our names.
func (d *Dialer) beginCall(cc *grpc.ClientConn) (*channel, error) {
	if c, ok := d.byConn.Load(cc); ok && c.(*channel).beginCall() {
		return c.(*channel), nil
	}
	prefix, address, ok := strings.Cut(cc.Target(), ":///")
	if !ok {
		address = cc.Target()
	}
	found, ours := d.byAddress.Load(address)
	if !ours || ok && prefix == scheme { // the interceptors are on a channel's own connection, too
		return nil, nil
	}
	to := found.(*callee)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseClosed(to)
	if to.creds == nil {
		return nil, nil // gRPC's own resolver answers for every connection
	}
	if c := to.conns[cc]; c != nil {
		c.beginCall()
		return c, nil
	}
	c, err := d.acquireChannel(to)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "open a channel to %s as %s: %v", to.app, to.address, err)
	}
	c.beginCall()
	// daprd closes a connection when a call on it ends with Unavailable. Another call may have
	// taken that connection from the pool just before, and does not fail with it.
	if cc.GetState() == connectivity.Shutdown {
		d.releaseChannel(c)
	} else {
		to.conns[cc] = c
		d.byConn.Store(cc, c)
	}
	return c, nil
}

// releaseClosed releases the channels of closed connections. The caller holds the lock.
func (d *Dialer) releaseClosed(to *callee) {
	for cc, c := range to.conns {
		if cc.GetState() == connectivity.Shutdown {
			delete(to.conns, cc)
			d.byConn.Delete(cc)
			d.releaseChannel(c)
		}
	}
}

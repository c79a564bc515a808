// Package nameresolution is Isthmus as a Dapr name-resolution component: it answers
// where an app is from a view that it holds in memory.
//
// The view comes from the resolver service, as a stream which also registers this
// sidecar; or, without a service, from the config store, with this cluster's own apps
// left to a resolver of Dapr's. What the package knows of Dapr is the shape of its
// calls; components/daprd adapts it to Dapr's interface.
package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/open"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/tracing"
)

// Instance is the sidecar that a Resolver runs in.
type Instance struct {
	App     catalog.App
	Address string // the IP that daprd found for itself
	Port    int    // of its internal gRPC server
}

// Options are what a Resolver takes from its surroundings.
type Options struct {
	Logger *slog.Logger
	// Version is that of the program, and Runtime what it is part of, such as "daprd 1.18.0".
	// Operators see them.
	Version, Runtime string
	// PlainText says that calls between this sidecar and others are not encrypted. Gateways pass
	// on mTLS only.
	PlainText bool
	// Unguarded says that nobody asks the guard about the calls that come in. The service hears it.
	Unguarded bool
	// TrustAnchors are the roots in PEM that its calls to others, and theirs to it, must chain to.
	// Operators see their fingerprints.
	TrustAnchors []byte
	// Identity is whose the sidecar is, where the program has it already and runs it. Then the
	// configuration needs none.
	Identity *identity.Source
	// SpanFromContext finds the span that a lookup is part of. Nil is
	// [trace.SpanFromContext].
	SpanFromContext func(context.Context) trace.Span
	// Health follows whether this sidecar can take calls, until ctx ends or there is nothing
	// to follow any more. It calls turn with nil once it can, with the reason when it can't,
	// and so on; turn does not block. Others are not sent here before the first nil, nor
	// after a reason. It is called in a goroutine of its own; nil can take calls at once.
	Health func(ctx context.Context, turn func(error))
	// Made returns the calls of this sidecar since it started; nil: they are not known. Tap gets single
	// ones, also those that come in; nil: it can't be tapped.
	Made func() []Made
	Tap  *traffic.Tap
	// Dial connects to the resolver service, by its "ip:port" or the path of its socket; nil: as gRPC
	// does by itself.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Local makes the Dapr resolver named by the configuration's local. It is called
	// by Init, and only for a configuration with a store.
	Local func(component, version string, configuration any) (LocalResolver, error)
	// Stores are the kinds of config store that the configuration's store may name
	// beside the built-in ones.
	Stores []open.Kind
}

// LocalResolver is a resolver of Dapr's, asked for apps of this cluster.
type LocalResolver interface {
	// Find returns the addresses of an app; none, or an error, is nothing found. It is
	// called from many goroutines at once, for one app by one at a time. port is this
	// sidecar's.
	Find(ctx context.Context, app catalog.App, port int) (addresses []string, err error)
	Close() error
}

// Resolver answers lookups. Init comes first; then all methods may be called from any
// goroutine.
type Resolver struct {
	opts Options
	log  *slog.Logger

	// Set by Init.
	self     Instance
	cluster  string
	own      string // this sidecar's own address
	reached  string // the address under which others reach it; empty without a service
	zone     string // as configured
	timeout  time.Duration
	retry    bool
	tells    bool
	lookups  *tracing.Lookups
	contact  *contact
	client   *client // nil without a service
	locals   *locals // nil with a service
	end      context.CancelFunc
	closing  sync.Once
	closeErr error
	parts    sync.WaitGroup
	connect  func(ctx context.Context, address string) error // nil: over TCP; tests have their own

	refusals refusals                  // lookups that were refused
	served   live.Value[*catalog.View] // what lookups read
	mirrors  live.Value[*mirror]       // what the service sent
	access   live.Value[*access]       // who may call this app
	guard    *Guard                    // nil without a service
	identity *identity.Source          // nil without a service
	gateways live.Value[*catalog.Gateways]
}

// New makes a resolver, and starts nothing.
func New(opts Options) *Resolver {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.SpanFromContext == nil {
		opts.SpanFromContext = trace.SpanFromContext
	}
	return &Resolver{opts: opts, log: opts.Logger}
}

// Init reads the configuration that daprd hands over and starts to get the view. It waits for
// nothing and fails only for a mistake in the configuration. ctx bounds Init itself. Its goroutines
// end with [Resolver.Close].
func (r *Resolver) Init(_ context.Context, configuration any, self Instance) error {
	cfg, err := (&config{known: r.opts.Identity}).parse(configuration)
	if err != nil {
		return err
	}
	if err := self.App.Check(); err != nil {
		return fmt.Errorf("isthmus: this sidecar's app: %w", err)
	}
	if err := cfg.readCalls(self.App.Namespace); err != nil {
		return err
	}
	if err := self.App.CheckHost(); err != nil {
		r.log.Info("under this app-id the app can't be called from other clusters, and calls none there", "app", self.App.String(), "err", err)
	}
	r.self, r.cluster, r.timeout = self, cfg.Cluster, cfg.ResolveTimeout
	r.retry = cfg.RetryCutOff == nil || *cfg.RetryCutOff
	r.tells = cfg.TellCaller
	r.own = net.JoinHostPort(self.Address, strconv.Itoa(self.Port))
	r.lookups = tracing.NewLookups(cfg.Cluster, self.App, r.opts.SpanFromContext)
	r.contact = newContact(r.log, cfg.source())
	ctx, end := context.WithCancel(context.Background())
	r.end = end
	if cfg.Resolver != "" {
		err = r.startService(ctx, cfg)
	} else {
		err = r.startStandalone(ctx, cfg)
	}
	if err != nil {
		return errors.Join(err, r.Close())
	}
	r.parts.Go(func() {
		limit, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		if _, err := r.served.Wait(limit); err != nil && ctx.Err() == nil {
			r.contact.missing()
		}
	})
	return nil
}

// serve publishes what lookups read from now on. The gateways come first, so that a
// name which a lookup answers can be dialled.
func (r *Resolver) serve(view *catalog.View) {
	if zone := r.zoneIn(view); zone != view.Zone {
		in := *view
		in.Zone, view = zone, &in
	}
	if old, ok := r.gateways.Load(); !ok || !old.Equal(view.Gateways) {
		r.gateways.Store(view.Gateways)
	}
	r.served.Store(view)
}

// zoneIn is where this sidecar runs: as it is configured, or as the service knows it.
func (r *Resolver) zoneIn(view *catalog.View) string {
	self, ok := view.Entries.Get(r.self.App)
	if r.zone != "" || !ok {
		return r.zone
	}
	for i := range self.Routes {
		route := &self.Routes[i]
		if !route.Local || route.Zones == nil {
			continue
		}
		if at := slices.Index(route.Addresses, r.reached); at >= 0 {
			return route.Zones.At(at)
		}
	}
	return ""
}

// Gateways are the gateways of the clusters that the view leads to, for whoever turns
// gateway names into addresses. It holds nothing before the first view.
func (r *Resolver) Gateways() *live.Value[*catalog.Gateways] { return &r.gateways }

// View is the view that lookups go by, nil before the first, and a channel that is closed
// once another one stands.
func (r *Resolver) View() (view *catalog.View, changed <-chan struct{}) {
	view, _, changed = r.served.Follow()
	return view, changed
}

// Guard lets calls of this sidecar's app in or refuses them. It is nil without a service, when
// nobody tells who may call, and where nobody asks it.
func (r *Resolver) Guard() *Guard { return r.guard }

// TellsCaller tells whether the app is to be told of its caller's certificate.
func (r *Resolver) TellsCaller() bool { return r.tells }

// Away is for how long the source of the view has not been heard; 0 while it is.
func (r *Resolver) Away() time.Duration { return r.contact.away() }

// Failed says that an address of an app, as the view has it, refused or does not answer.
// Without a service, where nobody else says so, the view goes on without it while there is
// another way, until a connection to it succeeds. With a service it has no effect.
func (r *Resolver) Failed(app catalog.App, address string) {
	if r.locals != nil {
		r.locals.failed(app, address)
	}
}

// Credentials are those of calls to an app in this sidecar's own name, for a caller that calls the app
// by another name.
func (r *Resolver) Credentials(app catalog.App) (credentials.TransportCredentials, error) {
	if r.identity == nil || r.identity.Insecure() {
		return nil, fmt.Errorf("calls of %s by another name need a certificate of this component's own; write identity: {sentry: {address: …}} beside resolver in its configuration, or take as: out of the AppEndpoints %s", app, r.self.App)
	}
	anchors := r.opts.TrustAnchors // those of other clusters, too
	if len(anchors) == 0 {
		return credentials.NewTLS(r.identity.ClientTLS(identity.OneOf(app))), nil
	}
	cfg, err := r.identity.ClientTLSBelow(anchors, identity.OneOf(app))
	if err != nil {
		return nil, fmt.Errorf("the trust anchors of daprd: %w", err)
	}
	return credentials.NewTLS(cfg), nil
}

// RetryCutOff tells whether a call that a lost gateway cut off is to be tried again through another
// gateway, for callers that dial gateway names.
func (r *Resolver) RetryCutOff() bool { return r.retry }

// Drain takes this sidecar out of the views of others, and returns once all of them
// are without it, or ctx ends. Lookups go on as before. Without a service, or when it
// was never reached, there is nothing to do.
func (r *Resolver) Drain(ctx context.Context) error {
	if r.client == nil {
		return nil
	}
	r.client.leave()
	if !r.client.hailed.Load() {
		return nil
	}
	select {
	case <-r.client.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: the resolver service has not confirmed it: %w; %s", ctx.Err(), r.contact.why())
	}
}

// Close ends the stream, and with it this sidecar's registration, and waits for all
// that Init has started.
func (r *Resolver) Close() error {
	r.closing.Do(func() {
		if r.end != nil {
			if r.client != nil {
				r.client.lastReport()
			}
			r.end()
		}
		if r.locals != nil {
			r.locals.end()
		}
		r.parts.Wait()
		if r.locals != nil {
			r.closeErr = r.locals.resolver.Close()
		}
	})
	return r.closeErr
}

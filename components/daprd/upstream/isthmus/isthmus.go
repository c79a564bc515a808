// Package isthmus is a name resolver for Dapr: where an app is, also in other clusters, from the view
// that Isthmus' resolver service streams.
package isthmus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/kit/logger"
	kitmd "github.com/dapr/kit/metadata"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxViewBytes is the longest message that is taken from the service: a whole view is one.
const maxViewBytes = 512 << 20

// settings are the component's configuration. The tags say all that the documentation says.
type settings struct {
	Resolver          string        `mapstructure:"resolver" required:"true" example:"127.0.0.1:7400" description:"The resolver service: host:port, or unix:///path."`
	Cluster           string        `mapstructure:"cluster" required:"true" example:"west" description:"The name of this cluster, as its resolver service has it."`
	CertFile          string        `mapstructure:"certFile" example:"/etc/isthmus/tls.crt" description:"This app's certificate with its SPIFFE ID, in PEM. It is read again for each connection."`
	KeyFile           string        `mapstructure:"keyFile" example:"/etc/isthmus/tls.key" description:"The certificate's private key, in PEM."`
	CAFile            string        `mapstructure:"caFile" example:"/etc/isthmus/ca.crt" description:"The roots of the resolver service's certificate, in PEM."`
	Insecure          bool          `mapstructure:"insecure" default:"false" example:"true" description:"Plain text to the resolver service, without certificates."`
	ResolverNamespace string        `mapstructure:"resolverNamespace" default:"isthmus-system" example:"mesh" description:"The namespace in the resolver service's SPIFFE ID."`
	Advertise         string        `mapstructure:"advertise" example:"10.0.0.5" description:"The IP address at which others reach this sidecar, if that is not its own."`
	ResolveTimeout    time.Duration `mapstructure:"resolveTimeout" default:"2s" example:"5s" description:"How long a lookup waits for the first view."`
}

// read takes the configuration, and the defaults for what it lacks.
func (s *settings) read(configuration any) error {
	defaults := map[string]string{}
	for field := range reflect.TypeFor[settings]().Fields() {
		if value, ok := field.Tag.Lookup("default"); ok {
			defaults[field.Tag.Get("mapstructure")] = value
		}
	}
	if err := kitmd.DecodeMetadata(defaults, s); err != nil {
		return err
	}
	if err := kitmd.DecodeMetadata(configuration, s); err != nil {
		return err
	}
	return s.check()
}

func (s *settings) check() error {
	switch {
	case s.Resolver == "":
		return errors.New("resolver is missing: write the address of the resolver service, host:port")
	case s.Insecure == (s.CertFile != "" || s.KeyFile != "" || s.CAFile != ""):
		return errors.New("write certFile, keyFile and caFile, or insecure: true for plain text")
	case !s.Insecure && (s.CertFile == "" || s.KeyFile == "" || s.CAFile == ""):
		return errors.New("certFile, keyFile and caFile go together")
	}
	if err := catalog.CheckCluster(s.Cluster); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// GetX509SVID and GetX509BundleForTrustDomain read the files again, since certificates are renewed.
func (s *settings) GetX509SVID() (*x509svid.SVID, error) { return x509svid.Load(s.CertFile, s.KeyFile) }

func (s *settings) GetX509BundleForTrustDomain(of spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	return x509bundle.Load(of, s.CAFile)
}

// credentials take the service of this cluster alone.
func (s *settings) credentials() credentials.TransportCredentials {
	if s.Insecure {
		return insecure.NewCredentials()
	}
	want := "/ns/" + s.ResolverNamespace + "/isthmus-" + s.Cluster
	return credentials.NewTLS(tlsconfig.MTLSClientConfig(s, s, tlsconfig.AdaptMatcher(func(id spiffeid.ID) error {
		if id.Path() != want {
			return fmt.Errorf("the resolver service is %s; want %s", id, want)
		}
		return nil
	})))
}

// Resolver answers lookups from the last view.
type Resolver struct {
	logger logger.Logger
	settings
	self catalog.App
	own  string // this sidecar's address

	view  atomic.Pointer[catalog.View] // nil before the first
	first chan struct{}                // closed with the first view
	lost  atomic.Pointer[error]        // why there is no stream; nil while there is one

	conn    *grpc.ClientConn // nil before Init
	end     context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
}

// NewResolver creates the name resolver.
func NewResolver(logger logger.Logger) nameresolution.Resolver {
	return &Resolver{logger: logger, first: make(chan struct{})}
}

// Init starts to follow the view, and with it registers this sidecar. It waits for nothing, so that
// the sidecar starts while the service is away.
func (r *Resolver) Init(_ context.Context, md nameresolution.Metadata) error {
	if err := r.read(md.Configuration); err != nil {
		return fmt.Errorf("isthmus: %w", err)
	}
	r.self = catalog.App{Namespace: md.Instance.Namespace, ID: md.Instance.AppID}
	if err := r.self.Check(); err != nil {
		return fmt.Errorf("isthmus: this sidecar's app: %w", err)
	}
	host := md.Instance.Address
	if r.Advertise != "" {
		host = r.Advertise
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || md.Instance.DaprInternalPort <= 0 {
		return fmt.Errorf("isthmus: this sidecar is at %q, port %d: want an IP address and a port", host, md.Instance.DaprInternalPort)
	}
	r.own = net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(md.Instance.DaprInternalPort))

	r.conn, err = grpc.NewClient(r.settings.Resolver, grpc.WithTransportCredentials(r.credentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxViewBytes)))
	if err != nil {
		return fmt.Errorf("isthmus: resolver: %w", err)
	}
	ctx, end := context.WithCancel(context.Background()) // Init's ends before Close
	r.end = end
	r.running.Go(func() { r.follow(ctx) })
	return nil
}

// follow keeps the stream open until ctx ends. It logs an outage once, and its end.
func (r *Resolver) follow(ctx context.Context) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(0))
	heard := func() {
		wait.Reset()
		if r.lost.Swap(nil) != nil {
			r.logger.Infof("the resolver service at %s is back", r.settings.Resolver)
		}
	}
	_ = backoff.RetryNotify(func() error { return r.watch(ctx, heard) }, backoff.WithContext(wait, ctx), func(err error, _ time.Duration) {
		if r.lost.Swap(&err) == nil {
			r.logger.Warnf("lost the resolver service at %s; answering from the last view, reconnecting: %v", r.settings.Resolver, err)
		}
	})
}

// watch publishes the views of one stream, which registers this sidecar for as long as it lives.
func (r *Resolver) watch(ctx context.Context, heard func()) error {
	stream, err := pb.NewResolverClient(r.conn).Watch(ctx)
	if err != nil {
		return err
	}
	hello := &pb.Hello{App: wire.App(r.self), Instance: &pb.Instance{Id: r.own, Address: r.own}}
	if last := r.view.Load(); last != nil {
		hello.Revision = last.Revision
	}
	if err := stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	view := &catalog.View{} // a hello that names no entries gets all
	for {
		change, err := stream.Recv()
		if err != nil {
			return err
		}
		heard()
		if view, err = next(view, change); err != nil {
			r.logger.Errorf("the resolver service sent entries that can't be used: %v", err)
		}
		if r.view.Swap(view) == nil {
			close(r.first)
		}
	}
}

// next is a view after a change. What stood for an app stays if its entry can't be read.
func next(view *catalog.View, change *pb.WatchResponse) (*catalog.View, error) {
	var errs []error
	edits := make([]catalog.Edit[*catalog.Entry], 0, len(change.GetPut())+len(change.GetRemoved()))
	for _, put := range change.GetPut() {
		entry, err := wire.ParseEntry(put)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		edits = append(edits, catalog.Edit[*catalog.Entry]{App: entry.Name(), Value: entry})
	}
	for _, app := range change.GetRemoved() {
		edits = append(edits, catalog.Edit[*catalog.Entry]{App: wire.AppOf(app), Remove: true})
	}
	return &catalog.View{
		Revision: max(view.Revision, change.GetRevision()), Open: change.GetOpen(), Rule: change.GetRule(), Entries: view.Entries.With(edits...),
	}, errors.Join(errs...)
}

// ResolveID returns the address of an instance, or the name that the app has at another cluster's
// gateway. It waits only while there is no view yet.
func (r *Resolver) ResolveID(ctx context.Context, req nameresolution.ResolveRequest) (string, error) {
	app := catalog.App{Namespace: req.Namespace, ID: req.ID}
	if r.conn == nil {
		return "", errors.New("isthmus: name resolution has not started")
	}
	if app == r.self {
		return r.own, nil
	}
	view := r.view.Load()
	if view == nil {
		ctx, cancel := context.WithTimeout(ctx, r.ResolveTimeout)
		defer cancel()
		select {
		case <-r.first:
			view = r.view.Load()
		case <-ctx.Done():
			err := ctx.Err()
			if lost := r.lost.Load(); lost != nil {
				err = errors.Join(err, *lost)
			}
			return "", fmt.Errorf("not ready: %s has no view from the resolver service at %s yet: %w", r.self, r.settings.Resolver, err)
		}
	}
	entry, err := view.Find(app)
	switch {
	case err != nil:
		return "", err
	case entry.Name() != entry.App: // whose certificate daprd would refuse
		return "", fmt.Errorf("unavailable: %s stands for %s, which needs daprd with Isthmus", app, entry.App)
	}
	return entry.Address(), nil
}

// Close ends the stream: the service takes this sidecar out of all views.
func (r *Resolver) Close() (err error) {
	r.closing.Do(func() {
		if r.conn != nil {
			r.end()
			r.running.Wait()
			err = r.conn.Close()
		}
	})
	return err
}

// GetComponentMetadata returns the fields of the configuration.
func (r *Resolver) GetComponentMetadata() (fields metadata.MetadataMap) {
	_ = metadata.GetMetadataInfoFromStructType(reflect.TypeFor[settings](), &fields, metadata.NameResolutionType)
	return fields
}

package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

var errNotStarted = errors.New("name resolution with isthmus has not started")

// resolver is one nr.Resolver in daprd. It has no ResolveIDMulti on purpose: daprd
// would keep that one's answers for 20 seconds, while ResolveID is asked each time.
type resolver struct {
	component *Component
	log       *slog.Logger

	// Set once by Init, which daprd calls before anything else.
	app       catalog.App
	isthmus   *nameresolution.Resolver // nil when Init failed
	failed    error                    // why it did
	stopDrain func() bool
	drained   chan struct{} // closed after the drain at the runtime's end
}

// Init starts the resolver. When it fails daprd logs the error, goes on, and still asks
// for lookups.
//
// ctx ends when daprd's runtime begins to stop, which is the moment to leave views
// when nobody said so before: at a shutdown by API, which blocks for nothing.
func (r *resolver) Init(ctx context.Context, md nr.Metadata) error {
	isthmus := nameresolution.New(nameresolution.Options{
		Logger:          r.log,
		SpanFromContext: utils.SpanFromContext,
		Health: func(ctx context.Context, turn func(error)) {
			awaitReady(ctx, md.Instance)
			r.component.app.follow(ctx, turn)
		},
		Stores: stores(),
		Local: func(name, version string, configuration any) (nameresolution.LocalResolver, error) {
			l, err := r.component.local(ctx, name, version, configuration, md.Instance)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
	})
	err := isthmus.Init(ctx, md.Configuration, nameresolution.Instance{
		App:     catalog.App{Namespace: md.Instance.Namespace, ID: md.Instance.AppID},
		Address: md.Instance.Address,
		Port:    md.Instance.DaprInternalPort,
	})
	if err != nil {
		r.failed = fmt.Errorf("%w: %w", errNotStarted, err)
		return err
	}
	r.app, r.isthmus = catalog.App{Namespace: md.Instance.Namespace, ID: md.Instance.AppID}, isthmus
	r.drained = make(chan struct{})
	r.stopDrain = context.AfterFunc(ctx, r.drainAtEnd)
	r.component.names.Use(r.isthmus)
	r.component.add(r)
	return nil
}

// ResolveID answers one lookup: by the name under which calls to the app follow its plan,
// since an address would bind the call to what is chosen now. It allocates nothing of its
// own.
func (r *resolver) ResolveID(ctx context.Context, req nr.ResolveRequest) (string, error) {
	if r.isthmus == nil {
		return "", cmp.Or(r.failed, errNotStarted)
	}
	app := catalog.App{Namespace: req.Namespace, ID: req.ID}
	address, err := r.isthmus.ResolveID(ctx, app)
	if err != nil || app == r.app {
		return address, err
	}
	return r.component.names.Name(app, address), nil
}

// Close ends the resolver. daprd calls it last, after a successful Init only.
func (r *resolver) Close() error {
	if r.stopDrain == nil {
		return nil
	}
	r.component.remove(r)
	if !r.stopDrain() {
		<-r.drained
	}
	return r.isthmus.Close()
}

func (r *resolver) drain(ctx context.Context) error { return r.isthmus.Drain(ctx) }

func (r *resolver) drainAtEnd() {
	defer close(r.drained)
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := r.drain(ctx); err != nil {
		r.log.Warn("leaving the views of other apps took too long or failed; some may call this one once more", "err", err)
	}
}

// local is one of Dapr's own resolvers, as the component asks it.
type local struct{ dapr nr.Resolver }

// Dapr's resolvers name one address at a time: in turn, by chance, or always the same.
const (
	repeats     = 8 // answers in a row that name no other address are enough
	mostAnswers = 64
)

// Find asks until it has all addresses, as far as can be known.
func (l *local) Find(ctx context.Context, app catalog.App, port int) (addresses []string, err error) {
	known := 0 // answers since the last address that was new
	for range mostAnswers {
		address, err := l.dapr.ResolveID(ctx, nr.ResolveRequest{ID: app.ID, Namespace: app.Namespace, Port: port})
		if err != nil || address == "" {
			if len(addresses) > 0 {
				err = nil
			}
			return addresses, err
		}
		if !slices.Contains(addresses, address) {
			addresses, known = append(addresses, address), 0
		} else if known++; known == repeats {
			break
		}
	}
	return addresses, nil
}

func (l *local) Close() error { return l.dapr.Close() }

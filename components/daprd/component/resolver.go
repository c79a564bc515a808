package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"github.com/dapr/dapr/pkg/security/consts"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

var errNotStarted = errors.New("name resolution with isthmus has not started")

// resolver is one nr.Resolver in daprd. It has no ResolveIDMulti on purpose: daprd would cache those
// answers for 20 seconds, while it calls ResolveID each time.
type resolver struct {
	component *Component
	log       *slog.Logger

	// Init sets these once. daprd calls it before anything else.
	isthmus   *nameresolution.Resolver // nil if Init failed
	guard     *guard
	direct    bool  // lookups answer addresses, without a dialer
	initErr   error // why Init failed
	stopDrain func() bool
	drained   chan struct{} // closed after drainAtEnd, or once Close has made that needless
}

// Init starts the resolver. If it fails, daprd logs the error, continues, and still makes lookups.
//
// ctx ends when daprd's runtime begins to stop. A shutdown by API gives no earlier notice, so the
// resolver drains then.
func (r *resolver) Init(ctx context.Context, md nr.Metadata) error {
	isthmus := nameresolution.New(nameresolution.Options{
		Logger:          r.log,
		Version:         version(),
		Runtime:         r.component.without.runtime(),
		PlainText:       r.component.PlainText,
		Unguarded:       !r.component.without.has(guardPart),
		TrustAnchors:    []byte(os.Getenv(consts.TrustAnchorsEnvVar)), // which is where daprd has them from
		SpanFromContext: utils.SpanFromContext,
		Health: func(ctx context.Context, turn func(error)) {
			awaitReady(ctx, md.Instance)
			r.component.App.follow(ctx, turn)
		},
		Made:   r.component.dialer.Made,
		Tap:    r.component.dialer.Tap,
		Stores: r.component.Stores,
		Local: func(name, version string, configuration any) (nameresolution.LocalResolver, error) {
			l, err := r.component.local(ctx, name, version, configuration, md.Instance)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
	})
	r.component.without.logLost(r.log)
	self := catalog.App{Namespace: md.Instance.Namespace, ID: md.Instance.AppID}
	err := isthmus.Init(ctx, md.Configuration, nameresolution.Instance{
		App:     self,
		Address: md.Instance.Address,
		Port:    md.Instance.DaprInternalPort,
	})
	if err != nil {
		r.initErr = fmt.Errorf("%w: %w; correct this and restart daprd", errNotStarted, err)
		return err
	}
	r.isthmus, r.direct = isthmus, !r.component.without.has(dialerPart)
	r.guard = &guard{self: self, port: md.Instance.DaprInternalPort, of: isthmus.Guard(), tells: isthmus.TellsCaller(), plainText: r.component.PlainText}
	r.drained = make(chan struct{})
	r.stopDrain = context.AfterFunc(ctx, r.drainAtEnd)
	r.component.dialer.Use(r.isthmus)
	r.component.add(r)
	return nil
}

// ResolveID answers one lookup with the app's name at the dialer. An address would bind the call to
// the instance chosen now, as it does without a dialer. ResolveID itself allocates nothing.
func (r *resolver) ResolveID(ctx context.Context, req nr.ResolveRequest) (string, error) {
	app := catalog.App{Namespace: req.Namespace, ID: req.ID}
	if r.isthmus == nil {
		return "", r.refused(app, nil, cmp.Or(r.initErr, errNotStarted))
	}
	if app != r.guard.self {
		if err := r.guard.relay(ctx, app); err != nil {
			return "", r.refused(app, nil, err)
		}
	}
	address, entry, err := "", (*catalog.Entry)(nil), error(nil)
	if r.direct {
		address, err = r.isthmus.ResolveID(ctx, app)
	} else {
		entry, err = r.isthmus.Find(ctx, app)
	}
	switch {
	case err != nil:
		view, _ := r.isthmus.View()
		return "", r.refused(app, view, err)
	case r.direct:
		return address, nil
	case entry == nil: // its own app, for which daprd asks on every proxied call that comes in
		return r.isthmus.Own(), nil
	}
	return r.component.dialer.Name(entry), nil
}

// refused counts a refused lookup, and returns its error.
func (r *resolver) refused(app catalog.App, view *catalog.View, err error) error {
	r.component.refusals.add(err, app, view)
	return err
}

// Close ends the resolver. daprd calls it last, after a successful Init only.
func (r *resolver) Close() error {
	if r.stopDrain == nil {
		return nil
	}
	r.component.remove(r)
	if r.stopDrain() {
		close(r.drained)
	}
	<-r.drained
	return r.isthmus.Close()
}

func (r *resolver) drain(ctx context.Context) error { return r.isthmus.Drain(ctx) }

func (r *resolver) drainAtEnd() {
	defer close(r.drained)
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := r.drain(ctx); err != nil {
		r.log.Warn(drainFailed, "err", err)
	}
}

// daprResolver is one of Dapr's own resolvers.
type daprResolver struct{ dapr nr.Resolver }

// Dapr's resolvers return one address at a time: in turn, at random, or always the same one.
const (
	maxRepeats = 8 // answers in a row without a new address
	maxAnswers = 64
)

// Find asks until it seems to have all addresses.
func (r *daprResolver) Find(ctx context.Context, app catalog.App, port int) (addresses []string, err error) {
	known := 0 // answers since the last new address
	for range maxAnswers {
		address, err := r.dapr.ResolveID(ctx, nr.ResolveRequest{ID: app.ID, Namespace: app.Namespace, Port: port})
		if err != nil || address == "" {
			if len(addresses) > 0 {
				err = nil
			}
			return addresses, err
		}
		if !slices.Contains(addresses, address) {
			addresses, known = append(addresses, address), 0
		} else if known++; known == maxRepeats {
			break
		}
	}
	return addresses, nil
}

func (r *daprResolver) Close() error { return r.dapr.Close() }

package nameresolution

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// startService starts to follow the view that the resolver service streams.
func (r *Resolver) startService(ctx context.Context, cfg *config) error {
	address, err := cfg.advertised(r.self)
	if err != nil {
		return fmt.Errorf("isthmus configuration: %w", err)
	}
	id := cfg.known
	if id == nil {
		if id, err = identity.New(*cfg.Identity, r.self.App, r.log); err != nil {
			return fmt.Errorf("isthmus configuration: %w", err)
		}
		r.parts.Go(func() { _ = id.Run(ctx) }) // returns nil
	}
	if r.opts.PlainText && !id.Insecure() {
		r.log.Warn("mTLS of this sidecar is off, but isthmus has an identity: calls to and from other clusters fail, since gateways pass on mTLS only; start daprd with --enable-mtls and Sentry's address")
	}
	if cfg.guard != nil && *cfg.guard == catalog.GuardEnforce && r.opts.PlainText {
		return errors.New("isthmus configuration: guard: enforce needs mTLS, since the certificate names the caller; start daprd with --enable-mtls and Sentry's address, or write guard: observe")
	}
	if cfg.guard != nil && *cfg.guard == catalog.GuardEnforce && r.opts.Unguarded {
		return errors.New("isthmus configuration: guard: enforce needs the guard, which this daprd is without; use one that has it, or write guard: off")
	}
	guard := newGuard(r, cfg.guard, id.Domain, r.log)
	if !r.opts.Unguarded {
		r.guard = guard
	}
	r.contact.blind, r.identity = id.Ready, id
	r.reached, r.zone = address, cfg.zone
	drain, leave := context.WithCancel(context.Background())
	ready, open := context.WithCancel(context.Background())
	r.client = &client{
		replicas:    newReplicas(cfg.resolvers()),
		credentials: id.ClientCredentials(identity.OneOf(identity.ServiceApp(cfg.ResolverNamespace, cfg.Cluster))),
		connect:     r.opts.Dial,
		app:         r.self.App,
		// An address has one holder at a time, so it names the instance, and a sidecar
		// that starts again takes its former place over.
		instance: &pb.Instance{Id: address, Address: address, Zone: cfg.zone, Version: cfg.version, Calls: string(cfg.calls)},
		log:      r.log, contact: r.contact,
		version: r.opts.Version, runtime: r.opts.Runtime, plainText: r.opts.PlainText, unguarded: r.opts.Unguarded, anchors: identity.Fingerprints(r.opts.TrustAnchors),
		publish: func(m *mirror) {
			r.serve(m.view)
			if now, ok := r.access.Load(); m.access != nil && (!ok || now != m.access) {
				r.access.Store(m.access)
			}
			r.mirrors.Store(m)
		},
		renewal: id.Renewal, guard: guard, refusals: &r.refusals, made: r.opts.Made, reported: map[callKey]Calls{}, toldMade: map[madeKey]*told{}, tap: r.opts.Tap,
		ready: ready, turned: make(chan struct{}, 1), drain: drain, leave: leave, drained: make(chan struct{}),
	}
	file := &lastGood{path: cfg.LastGood, app: r.self.App, cluster: cfg.Cluster, log: r.log}
	if m, age := file.load(); m != nil {
		r.contact.old(age)
		r.client.mirror, r.client.access = m, m.access
		r.serve(m.view)
		if m.access != nil {
			r.access.Store(m.access)
		}
	}
	r.parts.Go(func() { guard.follow(ctx) })
	if r.opts.Health == nil {
		open()
	}
	r.parts.Go(func() {
		defer open() // too late to matter, when it is for ctx
		if r.opts.Health != nil {
			r.opts.Health(ctx, func(err error) {
				if err == nil {
					open()
				}
				r.client.turn(err)
			})
		}
	})
	saving, saved := context.WithCancel(context.Background())
	r.parts.Go(func() {
		defer saved() // only now is there nothing left to save
		defer leave()
		// Dialling before there is an identity would only fail, and then wait.
		if id.Wait(ctx) == nil {
			r.client.run(ctx)
		}
	})
	if cfg.LastGood != "" {
		r.parts.Go(func() { file.follow(saving, &r.mirrors) })
	}
	return nil
}

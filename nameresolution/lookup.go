package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ResolveID is one lookup, by the rules in the order of the design: this app itself,
// then the view. It waits only while there is no view yet or, without a service, while the
// local resolver has to be asked for the first time. Otherwise it does no I/O, takes no
// lock, and allocates nothing when it succeeds. Its errors are [catalog.Refusal]s.
func (r *Resolver) ResolveID(ctx context.Context, app catalog.App) (string, error) {
	address, err := r.resolveID(ctx, app)
	if err != nil {
		r.refusals.add(app, err)
	}
	return address, err
}

func (r *Resolver) resolveID(ctx context.Context, app catalog.App) (string, error) {
	if parent := r.lookups.Parent(ctx); parent != nil {
		return r.resolveTraced(ctx, app, parent)
	}
	if app == r.self.App {
		return r.own, nil
	}
	if view, ok := r.served.Load(); ok && (r.locals == nil || r.locals.has(view, app)) {
		address, err := view.Resolve(app)
		if err == nil || r.locals == nil {
			return address, err
		}
	}
	return r.resolveSlow(ctx, app)
}

// Find is ResolveID for who chooses among the app's addresses later. It returns the app's entry,
// which has an address, or nil for this app itself.
func (r *Resolver) Find(ctx context.Context, app catalog.App) (*catalog.Entry, error) {
	e, err := r.find(ctx, app)
	if err != nil {
		r.refusals.add(app, err)
	}
	return e, err
}

func (r *Resolver) find(ctx context.Context, app catalog.App) (*catalog.Entry, error) {
	if parent := r.lookups.Parent(ctx); parent == nil {
		if app == r.self.App {
			return nil, nil
		}
		if view, ok := r.served.Load(); ok && (r.locals == nil || r.locals.has(view, app)) {
			e, err := view.Find(app)
			if err == nil || r.locals == nil {
				return e, err
			}
		}
	}
	return r.findSlow(ctx, app)
}

// findSlow is a Find that has a span, or that ResolveID would make by resolveSlow.
func (r *Resolver) findSlow(ctx context.Context, app catalog.App) (*catalog.Entry, error) {
	if _, err := r.resolveID(ctx, app); err != nil || app == r.self.App {
		return nil, err
	}
	view, err := r.await(ctx, app)
	if err != nil {
		return nil, err
	}
	return view.Find(app)
}

// Own returns the answer to lookups of this app itself.
func (r *Resolver) Own() string { return r.own }

// resolveTraced is a lookup that has a span. It is apart so that others need not carry
// what it needs on their stack.
func (r *Resolver) resolveTraced(ctx context.Context, app catalog.App, parent trace.Span) (string, error) {
	span := r.lookups.Start(ctx, parent, app)
	d := r.decide(ctx, app)
	span.End(&d)
	return d.Address, d.Err()
}

// resolveSlow is a lookup that may have to wait or, without a service, fails.
func (r *Resolver) resolveSlow(ctx context.Context, app catalog.App) (string, error) {
	view, err := r.await(ctx, app)
	if err != nil {
		return "", err
	}
	address, err := view.Resolve(app)
	var refusal *catalog.Refusal
	if r.locals != nil && errors.As(err, &refusal) && refusal.Outcome != catalog.Denied {
		refusal.Reason += r.locals.why(app)
	}
	return address, err
}

// await returns the view for a lookup, and waits for it if there is none yet.
func (r *Resolver) await(ctx context.Context, app catalog.App) (*catalog.View, error) {
	start := time.Now()
	limit, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	view, err := r.served.Wait(limit)
	if err != nil {
		waited := min(time.Since(start), r.timeout).Round(time.Millisecond)
		if err := ctx.Err(); err != nil {
			return nil, r.notReady(app, waited, err.Error()+"; "+r.contact.why())
		}
		return nil, r.notReady(app, waited, r.contact.why())
	}
	if r.locals != nil && !r.locals.has(view, app) {
		view = r.locals.await(ctx, app)
	}
	return view, nil
}

// notReady is the refusal of a lookup that has waited for the first view in vain.
func (r *Resolver) notReady(app catalog.App, waited time.Duration, cause string) *catalog.Refusal {
	return &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("%s can't look up %s yet: it waited %s for its view from %s: %s",
		r.self.App, app, waited, r.contact.source, strings.TrimPrefix(cause, r.contact.source+": "))}
}

// Explain makes one lookup and says why it ended as it did, and how old what it was
// made from is.
func (r *Resolver) Explain(ctx context.Context, app catalog.App) catalog.Decision {
	d := r.decide(ctx, app)
	if why := r.contact.why(); why != "" && d.Outcome != catalog.NotReady {
		d.Reason += "; from a view that is not being updated: " + why
	}
	return d
}

func (r *Resolver) decide(ctx context.Context, app catalog.App) catalog.Decision {
	if app == r.self.App {
		return catalog.Decision{Address: r.own, Cluster: r.cluster, Rule: catalog.SelfRule, Reason: "it is this sidecar's own app"}
	}
	view, err := r.await(ctx, app)
	if err != nil {
		return refused(err)
	}
	d := view.Explain(app)
	if r.locals != nil {
		r.locals.explain(&d, app)
	}
	return d
}

func refused(err error) catalog.Decision {
	var refusal *catalog.Refusal
	if errors.As(err, &refusal) {
		return catalog.Decision{Outcome: refusal.Outcome, Reason: refusal.Reason}
	}
	return catalog.Decision{Outcome: catalog.Unavailable, Reason: err.Error()}
}

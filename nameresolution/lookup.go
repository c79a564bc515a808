package nameresolution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// ResolveID is one lookup with the choice of an address, for callers without a dialer that chooses
// for each call. It follows the rules in the order of the design: this app itself, then the view.
// It waits only while there is no view yet, or another cluster is being asked for the app. Without a
// service it also waits while the local resolver has to be asked for the first time. Otherwise it does
// no I/O, takes no lock, and allocates nothing when it succeeds. Its errors are [catalog.Refusal]s.
func (r *Resolver) ResolveID(ctx context.Context, app catalog.App) (string, error) {
	if parent := r.lookups.Parent(ctx); parent != nil {
		_, d, err := r.traced(ctx, parent, app, (*catalog.Entry).Explain)
		return d.Address, cmp.Or(err, d.Err())
	}
	_, e, err := r.find(ctx, app)
	switch {
	case err != nil:
		return "", err
	case e == nil:
		return r.own, nil
	}
	if address := e.Address(); address != "" {
		return address, nil
	}
	return "", e.Refusal() // guests alone have it, to whom no address leads
}

// Find is [Resolver.ResolveID] without the choice of an address. It returns the app's entry, which
// has one, or nil for this app itself.
func (r *Resolver) Find(ctx context.Context, app catalog.App) (*catalog.Entry, error) {
	if parent := r.lookups.Parent(ctx); parent != nil {
		e, _, err := r.traced(ctx, parent, app, (*catalog.Entry).Outline)
		return e, err
	}
	_, e, err := r.find(ctx, app)
	return e, err
}

// traced is a lookup that has a span, with what explains its entry. It is apart so that others need
// not carry what it needs on their stack.
func (r *Resolver) traced(ctx context.Context, parent trace.Span, app catalog.App, explain func(*catalog.Entry) catalog.Decision) (*catalog.Entry, catalog.Decision, error) {
	span := r.lookups.Start(ctx, parent, app)
	view, e, err := r.find(ctx, app)
	var d catalog.Decision
	switch {
	case err != nil:
		d = refused(err)
		if view != nil {
			reason := d.Reason // which may have what the local resolver said
			d = view.Explain(app)
			d.Reason = reason
		}
	case e == nil:
		d = r.ownDecision()
	default:
		d = explain(e)
	}
	if view != nil {
		d.Revision = view.Revision
	}
	span.End(&d)
	return e, d, err
}

// find is a lookup without a span: it returns the entry, and the view that it is in. Both are nil for
// this app itself.
func (r *Resolver) find(ctx context.Context, app catalog.App) (*catalog.View, *catalog.Entry, error) {
	if app == r.self.App {
		return nil, nil, nil
	}
	if view, ok := r.served.Load(); ok && (r.locals == nil || r.locals.has(view, app)) {
		if e, err := view.Find(app); err == nil {
			return view, e, nil
		}
	}
	return r.findSlow(ctx, app)
}

// findSlow is a lookup that may have to wait, or fails.
func (r *Resolver) findSlow(ctx context.Context, app catalog.App) (view *catalog.View, e *catalog.Entry, err error) {
	if view, err = r.await(ctx, app); err == nil {
		e, err = view.Find(app)
	}
	if err == nil {
		return view, e, nil
	}
	var refusal *catalog.Refusal
	if view != nil && r.locals != nil && errors.As(err, &refusal) && refusal.Outcome != catalog.Denied {
		refusal.Reason += r.locals.why(app)
	}
	r.refusals.add(app, err)
	return view, nil, err
}

// Own returns the answer to lookups of this app itself.
func (r *Resolver) Own() string { return r.own }

// await returns the view for a lookup, and waits for it if there is none yet, or if another cluster is
// being asked for the app.
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
		return r.locals.await(ctx, app), nil
	}
	for {
		now, _, changed := r.served.Follow()
		if e, ok := now.Entries.Get(app); !ok || !e.Awaited() {
			return now, nil
		}
		select {
		case <-changed:
		case <-limit.Done():
			return now, nil
		}
	}
}

// notReady is the refusal of a lookup that has waited for the first view in vain.
func (r *Resolver) notReady(app catalog.App, waited time.Duration, cause string) *catalog.Refusal {
	return &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("%s can't look up %s yet: it waited %s for its view from %s: %s",
		r.self.App, app, waited, r.contact.source, strings.TrimPrefix(cause, r.contact.source+": "))}
}

// Explain makes one lookup and says why it ended as it did, and the age of its view.
func (r *Resolver) Explain(ctx context.Context, app catalog.App) catalog.Decision {
	d := r.decide(ctx, app)
	if why := r.contact.why(); why != "" && d.Outcome != catalog.NotReady {
		d.Reason += "; from a view that is not being updated: " + why
	}
	return d
}

func (r *Resolver) decide(ctx context.Context, app catalog.App) catalog.Decision {
	if app == r.self.App {
		return r.ownDecision()
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

func (r *Resolver) ownDecision() catalog.Decision {
	return catalog.Decision{Address: r.own, Cluster: r.cluster, Rule: catalog.SelfRule, Reason: "it is this sidecar's own app"}
}

func refused(err error) catalog.Decision {
	var refusal *catalog.Refusal
	if errors.As(err, &refusal) {
		return catalog.Decision{Outcome: refusal.Outcome, Reason: refusal.Reason}
	}
	return catalog.Decision{Outcome: catalog.Unavailable, Reason: err.Error()}
}

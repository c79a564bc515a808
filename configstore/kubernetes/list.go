package kubernetes

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// collection is what is read, in words that RBAC can allow by resourceNames.
func (r resource) collection() apiserver.Collection {
	c := apiserver.Collection{Path: r.path(r.namespace)}
	if r.name != "" {
		c.Query = url.Values{"fieldSelector": {"metadata.name=" + r.name}}
	}
	return c
}

// list reads all of a resource as it is at one moment, and says at which resourceVersion.
func (a *apiServer) list(ctx context.Context, r resource) (items []item, at string, err error) {
	raw, at, err := a.List(ctx, r.collection())
	if err != nil {
		return nil, "", fmt.Errorf("list %s %w", r, advise(err, "list", r))
	}
	items, err = r.parseAll(raw)
	return items, at, err
}

// listAll lists every resource at once. One that can't be read fails them all.
func (s *Store) listAll(ctx context.Context) (items []item, at []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	each := make([][]item, len(s.resources))
	at = make([]string, len(s.resources))
	var wait sync.WaitGroup
	for i, r := range s.resources {
		wait.Go(func() {
			var err error
			if each[i], at[i], err = s.api.list(ctx, r); err != nil {
				cancel(err) // the first one is the reason
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	for _, some := range each {
		items = append(items, some...)
	}
	return items, at, nil
}

// now is the resourceVersion that each resource is at, for the price of one object each.
func (s *Store) now(ctx context.Context) (at []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	at = make([]string, len(s.resources))
	var wait sync.WaitGroup
	for i, r := range s.resources {
		wait.Go(func() {
			p, err := s.api.Page(ctx, r.collection(), 1, "")
			if err != nil {
				cancel(fmt.Errorf("list %s %w", r, advise(err, "list", r)))
			}
			at[i] = p.Metadata.ResourceVersion
		})
	}
	wait.Wait()
	return at, context.Cause(ctx)
}

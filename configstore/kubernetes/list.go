package kubernetes

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

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
func (s *Store) list(ctx context.Context, r resource) (items []item, at string, err error) {
	raw, at, err := s.api.List(ctx, r.collection())
	if err != nil {
		return nil, "", fmt.Errorf("list %s %w", r, advise(err, "list", r))
	}
	items, err = r.parseAll(raw)
	return items, at, err
}

// listAll lists every resource at once. One that can't be read fails them all.
func (s *Store) listAll(ctx context.Context) (items []item, at []string, err error) {
	group, ctx := errgroup.WithContext(ctx)
	each := make([][]item, len(s.resources))
	at = make([]string, len(s.resources))
	for i, r := range s.resources {
		group.Go(func() (err error) {
			each[i], at[i], err = s.list(ctx, r)
			return err
		})
	}
	err = group.Wait()
	return slices.Concat(each...), at, err
}

// now is the resourceVersion that each resource is at, for the price of one object each.
func (s *Store) now(ctx context.Context) (at []string, err error) {
	group, ctx := errgroup.WithContext(ctx)
	at = make([]string, len(s.resources))
	for i, r := range s.resources {
		group.Go(func() error {
			p, err := s.api.Page(ctx, r.collection(), 1, "")
			if err != nil {
				return fmt.Errorf("list %s %w", r, advise(err, "list", r))
			}
			at[i] = p.Metadata.ResourceVersion
			return nil
		})
	}
	return at, group.Wait()
}

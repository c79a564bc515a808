package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
)

// pageSize is how many objects a list asks for at once, as kubectl does: the API server
// holds each page in memory.
const pageSize = 500

// page is a part of a list, or all of it.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// query narrows a query to the one object that is read, in words that RBAC can allow by
// resourceNames.
func (r resource) query() url.Values {
	q := url.Values{}
	if r.name != "" {
		q.Set("fieldSelector", "metadata.name="+r.name)
	}
	return q
}

func (a *apiServer) page(ctx context.Context, r resource, limit int, from string) (page, error) {
	q := r.query()
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if from != "" {
		q.Set("continue", from)
	}
	body, err := a.call(ctx, request{verb: "list", method: http.MethodGet, path: r.path(r.namespace), query: q})
	if err != nil {
		return page{}, fmt.Errorf("list %s %w", r, advise(err, "list", r))
	}
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		return page{}, fmt.Errorf("list %s at %s: the answer is not JSON: %w", r, a.host(), err)
	}
	if p.Metadata.ResourceVersion == "" {
		return page{}, fmt.Errorf("list %s at %s: the answer is no list of Kubernetes; is this an API server?", r, a.host())
	}
	return p, nil
}

// list reads all of a resource as it is at one moment, and says at which resourceVersion.
// When the pages of a slow reader are not kept so long, it is read again in one.
func (a *apiServer) list(ctx context.Context, r resource) (items []item, at string, err error) {
	var raw []json.RawMessage
	limit, from := pageSize, ""
	for {
		p, err := a.page(ctx, r, limit, from)
		if expired(err) && limit > 0 {
			raw, limit, from = nil, 0, ""
			continue
		}
		if err != nil {
			return nil, "", err
		}
		raw = append(raw, p.Items...)
		if from = p.Metadata.Continue; from == "" {
			items, err = r.parseAll(raw)
			return items, p.Metadata.ResourceVersion, err
		}
	}
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
			p, err := s.api.page(ctx, r, 1, "")
			if err != nil {
				cancel(err)
			}
			at[i] = p.Metadata.ResourceVersion
		})
	}
	wait.Wait()
	return at, context.Cause(ctx)
}

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// lookAgain is how soon definitions that are missing, and resources that can't be read, are looked
// for again.
const lookAgain = 10 * time.Second

// documents are the resources of one sort of another standard, for one Watch. They are no part of
// a Version, and what fails with them ends no Watch.
type documents struct {
	smimcs.Resource
	api  *apiserver.Server
	wait time.Duration // lookAgain
	path string        // of the collection, in a version that is read
	at   string        // resourceVersion that they were read up to; empty before the first list
	seen map[smimcs.ID]bool

	failing bool // and that was told
}

// documentNews is what was heard of documents: of each the newest, nil if it was deleted.
type documentNews struct {
	documents map[smimcs.ID]*smimcs.Document
	failed    map[string]error // by resource; nil if it is read again
}

func newDocumentNews() documentNews {
	return documentNews{map[smimcs.ID]*smimcs.Document{}, map[string]error{}}
}

// documentsOf are those of the standards that are to be read.
func (s *Store) documentsOf() (all []*documents) {
	for _, r := range smimcs.Resources {
		if slices.Contains(s.translate, r.Standard) {
			all = append(all, &documents{Resource: r, api: s.api, wait: s.lookAgain, seen: map[smimcs.ID]bool{}})
		}
	}
	return all
}

// listDocuments reads all documents for a full set. One without them could let apps call more, so
// that only those that nobody may read, or that are not installed, are left out.
func listDocuments(ctx context.Context, all []*documents) (documentNews, error) {
	news := newDocumentNews()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range all {
		group.Go(func() error {
			err := d.list(ctx, func(change func(*documentNews)) {
				mu.Lock()
				defer mu.Unlock()
				change(&news)
			})
			if code := apiserver.Code(err); code == http.StatusForbidden || code == http.StatusUnauthorized || code == http.StatusNotFound {
				return nil
			}
			return err
		})
	}
	return news, group.Wait()
}

// run follows the documents from where they are until the context ends.
func (d *documents) run(ctx context.Context, tell func(func(*documentNews))) {
	for ctx.Err() == nil {
		began := time.Now()
		if d.at != "" || d.list(ctx, tell) == nil {
			d.follow(ctx, tell)
		}
		live.Sleep(ctx, d.wait-time.Since(began)) // at once after a watch that lasted
	}
}

// list reads all of the documents, and tells what is other than it was. What was read before stands
// while it fails.
func (d *documents) list(ctx context.Context, tell func(func(*documentNews))) error {
	raw, at, err := []json.RawMessage(nil), "", d.discover(ctx)
	if err == nil {
		raw, at, err = d.api.List(ctx, apiserver.Collection{Path: d.path})
	}
	if err != nil {
		return d.fail(err, "list", tell)
	}
	d.at = at
	tell(func(n *documentNews) {
		n.failed[d.String()], d.failing = nil, false
		gone := d.seen
		d.seen = make(map[smimcs.ID]bool, len(raw))
		for _, object := range raw {
			id, _ := d.take(n, object, false)
			delete(gone, id)
		}
		for id := range gone {
			n.documents[id] = nil
		}
	})
	return nil
}

// discover finds the newest version that is read and that the API server has. Without one, a list
// finds that there is none.
func (d *documents) discover(ctx context.Context) error {
	d.path = "/apis/" + d.Group + "/" + d.Versions[0] + "/" + d.Plural
	body, err := d.api.Call(ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: "/apis/" + d.Group})
	var served struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	}
	if err == nil {
		err = json.Unmarshal(body, &served)
	}
	for _, known := range slices.Backward(d.Versions) {
		for _, v := range served.Versions {
			if v.Version == known {
				d.path = "/apis/" + d.Group + "/" + known + "/" + d.Plural
			}
		}
	}
	return err
}

func (d *documents) follow(ctx context.Context, tell func(func(*documentNews))) {
	err := d.api.Follow(ctx, apiserver.Collection{Path: d.path}, d.at, apiserver.Follower{
		Opened: func() {
			if d.failing {
				tell(func(n *documentNews) { n.failed[d.String()], d.failing = nil, false })
			}
		},
		Mark: func(version string) { d.at = version },
		Take: func(object json.RawMessage, deleted bool) (version string, err error) {
			tell(func(n *documentNews) { _, version = d.take(n, object, deleted) })
			d.at = version
			return version, nil
		},
	})
	if apiserver.Expired(err) {
		d.at = ""
	} else if ctx.Err() == nil {
		_ = d.fail(err, "watch", tell)
	}
}

// take notes a document. The API server has given it its own fields, which mean nothing here.
func (d *documents) take(n *documentNews, object json.RawMessage, deleted bool) (id smimcs.ID, version string) {
	var fields map[string]json.RawMessage
	var m meta
	if json.Unmarshal(object, &fields) != nil || json.Unmarshal(fields["metadata"], &m) != nil {
		return id, "" // an event without a version ends the watch
	}
	id = smimcs.ID{Kind: d.Kind, Namespace: m.Namespace, Name: m.Name}
	n.documents[id] = nil
	delete(d.seen, id)
	if !deleted {
		n.documents[id] = smimcs.DecodeJSON(d.String()+" "+m.Namespace+"/"+m.Name, object)
		d.seen[id] = true
	}
	return id, m.ResourceVersion
}

// fail tells that the documents can't be read, and returns why. A server that is away is the
// Watch's to tell, and what is not installed is no failure.
func (d *documents) fail(err error, verb string, tell func(func(*documentNews))) error {
	code := apiserver.Code(err)
	if code == 0 || code == http.StatusNotFound && len(d.seen) == 0 {
		return fmt.Errorf("%s %s %w", verb, d, err)
	}
	why := fmt.Errorf("%s %w; what was read of them stands, and so does all else", verb, err)
	if code == http.StatusForbidden || code == http.StatusUnauthorized {
		why = fmt.Errorf("%w; give the account the verbs list and watch on %s, as the role isthmus-translate of deploy/kubernetes/rbac.yaml does, or take %s out of store.kubernetes.translate",
			why, d, d.Standard)
	}
	tell(func(n *documentNews) { n.failed[d.String()], d.failing = why, true })
	return fmt.Errorf("%s %s %w", verb, d, err)
}

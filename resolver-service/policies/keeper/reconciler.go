package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// key names an object; resource is an index.
type key struct {
	resource        int
	namespace, name string
}

// stored is an object of ours as the API server has it.
type stored struct {
	uid, version string
	body         map[string]any
	gone         bool
}

// failing is an object that could not be written.
type failing struct {
	times int
	next  time.Time
	err   error // nil where somebody else made it
}

// reconciler is what should be, what is, and what is left to do.
type reconciler struct {
	k         *Keeper
	resources []resource
	wanted    map[key]*policies.Object
	byApp     map[catalog.App][]key
	is        map[key]*stored
	todo      map[key]struct{}
	failed    map[key]failing
	foreign   map[key]string   // made by somebody else, for people
	nowhere   map[key]struct{} // whose namespaces the API server does not have
	err       error            // of a write that failed and is to be done again

	news *live.Inbox[map[key]*stored] // of streams
}

func newReconciler(k *Keeper) *reconciler {
	b := &reconciler{
		k: k, wanted: map[key]*policies.Object{}, byApp: map[catalog.App][]key{}, is: map[key]*stored{}, todo: map[key]struct{}{},
		failed: map[key]failing{}, foreign: map[key]string{}, nowhere: map[key]struct{}{}, news: live.NewInbox(map[key]*stored{}),
	}
	for _, kind := range k.cfg.Kinds {
		b.resources = append(b.resources, resourcesOf(kind)...)
	}
	return b
}

// name is an object's, for people.
func (b *reconciler) name(at key) string {
	return b.resources[at.resource].kind + " " + at.namespace + "/" + at.name
}

func (b *reconciler) collection(r int) apiserver.Collection {
	return apiserver.Collection{
		Path: b.resources[r].path(""), Query: url.Values{"labelSelector": {policies.ManagedBy + "=" + policies.Manager + "," + clusterLabel + "=" + b.k.cfg.Cluster}},
	}
}

// list reads the objects of ours that there are.
func (b *reconciler) list(ctx context.Context, r int) (version string, err error) {
	items, version, err := b.k.api.List(ctx, b.collection(r))
	if apiserver.Code(err) == http.StatusNotFound {
		return "", fmt.Errorf("list %s %w; the API server does not know %s: install it, or leave the kind out of policies.kubernetes.kinds", b.resources[r].plural, err, b.resources[r].version)
	}
	if err != nil {
		return "", fmt.Errorf("list %s %w", b.resources[r].plural, err)
	}
	for _, text := range items {
		at, o, err := b.parse(r, text)
		if err != nil {
			return "", err
		}
		b.is[at], b.todo[at] = o, struct{}{}
	}
	return version, nil
}

// follow tells of changes until ctx ends or the server can't be watched.
func (b *reconciler) follow(ctx context.Context, r int, from string) error {
	err := b.k.api.Follow(ctx, b.collection(r), from, apiserver.Follower{Take: func(text json.RawMessage, deleted bool) (string, error) {
		at, o, err := b.parse(r, text)
		if err != nil {
			return "", err
		}
		o.gone = deleted
		b.news.Note(func(held *map[key]*stored) { (*held)[at] = o })
		return o.version, nil
	}})
	return fmt.Errorf("watch %s %w", b.resources[r].plural, err)
}

var errNoName = errors.New("an object has no name, UID or resourceVersion; is this an API server?")

func (b *reconciler) parse(r int, text []byte) (at key, o *stored, err error) {
	var meta struct {
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
		} `json:"metadata"`
	}
	o = &stored{}
	if err := errors.Join(json.Unmarshal(text, &meta), json.Unmarshal(text, &o.body)); err != nil {
		return at, nil, fmt.Errorf("%s at %s: %w", b.resources[r].plural, b.k.api.Host(), err)
	}
	m := meta.Metadata
	if m.Name == "" || m.UID == "" || m.ResourceVersion == "" {
		return at, nil, fmt.Errorf("%s at %s: %w", b.resources[r].plural, b.k.api.Host(), errNoName)
	}
	o.uid, o.version = m.UID, m.ResourceVersion
	return key{r, m.Namespace, m.Name}, o, nil
}

// hear takes in what streams have told.
func (b *reconciler) hear() {
	var news map[key]*stored
	b.news.Look(func(held *map[key]*stored) { news, *held = *held, map[key]*stored{} })
	for at, o := range news {
		if is := b.is[at]; is != nil && older(o.version, is.version) {
			continue // from before it was last written
		}
		if o.gone {
			delete(b.is, at)
		} else {
			b.is[at] = o
		}
		b.look(at)
	}
}

// look has an object looked at at once, whatever became of it before.
func (b *reconciler) look(at key) {
	b.todo[at] = struct{}{}
	delete(b.failed, at)
}

// older tells whether a resourceVersion is from before another. They are numbers that grow.
func older(version, than string) bool {
	a, err := strconv.ParseUint(version, 10, 64)
	b, otherErr := strconv.ParseUint(than, 10, 64)
	return err == nil && otherErr == nil && a < b
}

// want notes what should be of an app; f is nil where it is none of this cluster any more.
func (b *reconciler) want(app catalog.App, f *topology.Fence) {
	before := b.byApp[app]
	var now []key
	if f != nil {
		writer := b.k.cfg.Writer()
		for _, kind := range b.k.cfg.Kinds {
			objects, notes := writer.Write(kind, f)
			for _, note := range notes {
				b.k.log.Warn("note "+string(kind)+app.String()+note, "a policy can't say all", "kind", string(kind), "app", app.String(), "note", note)
			}
			for i := range objects {
				o := &objects[i]
				o.Metadata.Labels[clusterLabel] = b.k.cfg.Cluster
				at := key{b.resourceOf(o), o.Metadata.Namespace, o.Metadata.Name}
				b.wanted[at] = o
				b.look(at)
				now = append(now, at)
			}
		}
	}
	for _, at := range before {
		if !slices.Contains(now, at) {
			delete(b.wanted, at)
			b.look(at)
		}
	}
	if b.byApp[app] = now; len(now) == 0 {
		delete(b.byApp, app)
	}
}

func (b *reconciler) resourceOf(o *policies.Object) int {
	return slices.IndexFunc(b.resources, func(r resource) bool { return r.version == o.APIVersion && r.kind == o.Kind })
}

// Names that somebody else has, and namespaces that there are not, are looked at again after this
// time.
const foreignPause = time.Minute

// idle is how long nothing is due.
const idle = time.Hour

// work does all that is due, and returns when there is more.
func (b *reconciler) work(ctx context.Context) (wait time.Duration) {
	b.err = nil
	wait = idle
	for at := range b.todo {
		if f := b.failed[at]; time.Now().Before(f.next) {
			wait = min(wait, time.Until(f.next))
			b.err = cmp.Or(f.err, b.err)
			continue
		}
		if ctx.Err() != nil {
			return 0
		}
		pause, err := b.settle(ctx, at)
		f := b.failed[at]
		switch {
		case err != nil:
			f.times++
			pause = live.Backoff(firstPause, longestPause, f.times)
			b.err = advise(fmt.Errorf("%s: %w", b.name(at), err), b.k.policiesRoles())
			f.err = b.err
			b.k.log.Warn("write", "a policy can't be written; the others are", "object", b.name(at), "err", b.err)
			fallthrough
		case pause > 0:
			f.next = time.Now().Add(pause)
			b.failed[at] = f
			wait = min(wait, pause)
		default:
			delete(b.failed, at)
			delete(b.todo, at)
		}
	}
	b.k.update(func(s *Status) {
		s.Err, s.Objects, s.Pending, s.Left = b.err, len(b.is), len(b.todo)-len(b.foreign)-len(b.nowhere), sorted(b.foreign)
	})
	return wait
}

// settle brings one object to what should be. A pause is after which time it is to be looked at
// again, where it can't be written.
func (b *reconciler) settle(ctx context.Context, at key) (pause time.Duration, err error) {
	delete(b.foreign, at)
	delete(b.nowhere, at)
	wanted, is := b.wanted[at], b.is[at]
	switch {
	case wanted == nil && is == nil:
		return 0, nil
	case wanted == nil:
		return 0, b.remove(ctx, at, is)
	case is != nil && matches(asAny(wanted), is.body):
		return 0, nil
	case is != nil:
		return 0, b.apply(ctx, at, wanted, is.uid)
	}
	text, err := b.k.api.Call(ctx, apiserver.Request{Method: http.MethodGet, Path: b.pathOf(at)})
	switch {
	case apiserver.Code(err) == http.StatusNotFound:
		err := b.apply(ctx, at, wanted, "")
		if apiserver.Code(err) == http.StatusNotFound { // the app runs elsewhere
			b.nowhere[at] = struct{}{}
			return foreignPause, nil
		}
		return 0, err
	case err != nil:
		return 0, err
	}
	if _, o, err := b.parse(at.resource, text); err == nil && b.ours(o) {
		b.is[at] = o // the stream has not told of it yet
		return b.settle(ctx, at)
	}
	b.foreign[at] = fmt.Sprintf("%s was made by somebody else and is left alone; delete it, or label it %s=%s,%s=%s to hand it over", b.name(at), policies.ManagedBy, policies.Manager, clusterLabel, b.k.cfg.Cluster)
	b.k.log.Warn("foreign "+b.name(at), "a policy's name is taken", "object", b.name(at), "advice", b.foreign[at])
	return foreignPause, nil
}

func (b *reconciler) pathOf(at key) string {
	return b.resources[at.resource].path(at.namespace) + "/" + at.name
}

func (b *reconciler) ours(o *stored) bool {
	return matches(map[string]any{"metadata": map[string]any{"labels": map[string]any{policies.ManagedBy: policies.Manager, clusterLabel: b.k.cfg.Cluster}}}, o.body)
}

// apply writes an object by server-side apply: a new one only if nobody has made one meanwhile, and
// one that is there only if it is still the same.
func (b *reconciler) apply(ctx context.Context, at key, wanted *policies.Object, uid string) error {
	body, query := asAny(wanted), url.Values{"fieldManager": {Manager}, "fieldValidation": {"Strict"}}
	if uid != "" {
		body["metadata"].(map[string]any)["uid"] = uid
		query.Set("force", "true")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	answer, err := b.k.api.Call(ctx, apiserver.Request{Method: http.MethodPatch, Path: b.pathOf(at), Query: query, ContentType: "application/apply-patch+yaml", Body: text})
	if err != nil {
		return fmt.Errorf("apply %w", err)
	}
	_, o, err := b.parse(at.resource, answer)
	if err != nil {
		return err
	}
	b.is[at] = o
	b.wrote()
	return nil
}

// remove deletes an object as it was seen.
func (b *reconciler) remove(ctx context.Context, at key, is *stored) error {
	text, err := json.Marshal(map[string]any{"preconditions": map[string]string{"uid": is.uid, "resourceVersion": is.version}})
	if err != nil {
		return err
	}
	_, err = b.k.api.Call(ctx, apiserver.Request{Method: http.MethodDelete, Path: b.pathOf(at), ContentType: "application/json", Body: text})
	if err != nil && apiserver.Code(err) != http.StatusNotFound {
		return fmt.Errorf("delete %w", err)
	}
	delete(b.is, at)
	b.wrote()
	return nil
}

func (b *reconciler) wrote() { b.k.update(func(s *Status) { s.Writes++ }) }

// asAny is an object as package json reads it.
func asAny(o *policies.Object) (all map[string]any) {
	_ = json.Unmarshal(o.JSON(), &all) // it was just written
	return all
}

// matches tells whether an object has all that is wanted. Lists are equal in whole.
func matches(wanted, is any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		i, ok := is.(map[string]any)
		for k, v := range w {
			if !ok || !matches(v, i[k]) {
				return false
			}
		}
		return ok
	case []any:
		i, ok := is.([]any)
		return ok && slices.EqualFunc(w, i, matches)
	}
	return wanted == is
}

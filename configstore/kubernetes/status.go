package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// condition is one of an object's status: metav1.Condition.
type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

type statusOf struct {
	Conditions []condition `json:"conditions"`
}

// accepted is the type of the condition that the service writes.
const accepted = "Accepted"

// The reasons of the condition, and what it says of an object that is in use.
const (
	reasonAccepted = "Accepted"
	reasonInvalid  = "Invalid"
	inUse          = "The object is in use."
)

// longestMessage is what the definitions allow for a message.
const longestMessage = 32_000

// How fast statuses are written, and how long nothing is tried after a failure. Ten
// thousand that are all new take some minutes, in the background.
const (
	statusPause   = 20 * time.Millisecond
	statusBackoff = 5 * time.Second
	statusDenied  = 5 * time.Minute
)

// reporter writes to each object's status what became of it, one at a time and the newest
// first. It writes each generation once, and only where it does not stand there already:
// so several services do not write against each other, and its own writes come to an end.
type reporter struct {
	api *apiServer
	log *slog.Logger

	mu      sync.Mutex
	running bool
	pending map[catalog.Key]verdict
	order   []catalog.Key          // of pending, the newest last; some stand there twice
	written map[catalog.Key]string // revision that was reported last
	wake    chan struct{}          // has something in it when there is work
}

// verdict is what is to be said of an object.
type verdict struct {
	item item
	err  error
}

func newReporter(api *apiServer, log *slog.Logger) *reporter {
	return &reporter{api: api, log: log, pending: map[catalog.Key]verdict{}, written: map[catalog.Key]string{}, wake: make(chan struct{}, 1)}
}

// start lets the reporter run until the store is closed.
func (p *reporter) start(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return
	}
	p.running = true
	go func() {
		_ = s.life.Do(context.Background(), func(ctx context.Context) error { // else it has been closed meanwhile
			p.run(ctx)
			return nil
		})
	}()
}

// report says what became of an object. It never waits.
func (p *reporter) report(i item, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written[i.key] == i.meta.revision() {
		return
	}
	v := verdict{i, err}
	v.item.value = nil // is not needed any more
	if said(v) {
		p.written[i.key] = i.meta.revision()
		delete(p.pending, i.key)
		return
	}
	p.push(v)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// forget forgets an object that has been deleted.
func (p *reporter) forget(key catalog.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, key)
	delete(p.written, key)
}

// next takes the newest verdict.
func (p *reporter) next() (v verdict, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 {
		key := p.order[len(p.order)-1]
		p.order = p.order[:len(p.order)-1]
		if v, ok := p.pending[key]; ok {
			delete(p.pending, key)
			return v, true
		}
	}
	return verdict{}, false
}

// again puts a verdict back, unless there is a newer one.
func (p *reporter) again(v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, newer := p.pending[v.item.key]; !newer {
		p.push(v)
	}
}

// push is called with mu held.
func (p *reporter) push(v verdict) {
	p.pending[v.item.key] = v
	p.order = append(p.order, v.item.key)
	if len(p.order) <= 2*len(p.pending)+64 {
		return
	}
	seen := make(map[catalog.Key]bool, len(p.pending))
	kept := make([]catalog.Key, 0, len(p.pending))
	for _, key := range slices.Backward(p.order) {
		if _, waits := p.pending[key]; waits && !seen[key] {
			seen[key] = true
			kept = append(kept, key)
		}
	}
	slices.Reverse(kept)
	p.order = kept
}

func (p *reporter) run(ctx context.Context) {
	told := 0 // code of the failure that was logged last
	for ctx.Err() == nil {
		v, ok := p.next()
		if !ok {
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := p.write(ctx, v)
		pause, again := reaction(err, v)
		if again {
			p.again(v)
		}
		if c := apiserver.Code(err); pause > statusPause && c/100 == 4 && c != told && ctx.Err() == nil {
			told = c
			p.log.Warn("statuses can't be written; objects are used all the same", "object", where(v.item.key),
				"err", advise(err, "patch", statusResource(v.item.key.Kind)))
		} else if err == nil {
			told = 0
		}
		live.Sleep(ctx, pause)
	}
}

// reaction is how long to pause after a write, and whether to write the same again.
func reaction(err error, v verdict) (pause time.Duration, again bool) {
	switch c := apiserver.Code(err); {
	case err == nil, c == http.StatusConflict, missing(err, resourceOf(v.item.key.Kind)):
		return statusPause, false // of what is another by now, the watch tells soon
	case c == http.StatusForbidden, c == http.StatusUnauthorized, c == http.StatusNotFound:
		return statusDenied, true // nobody may, or the definitions have no status
	case c/100 == 4 && c != http.StatusTooManyRequests:
		return statusBackoff, false
	}
	return statusBackoff, true // the server is away, which Watch tells of
}

// statusResource is how RBAC calls the status of a kind.
func statusResource(kind catalog.Kind) resource {
	r := resourceOf(kind)
	r.plural += "/status"
	return r
}

// wanted is the condition that an object should have.
func (v verdict) wanted() condition {
	c := condition{
		Type: accepted, Status: "True", Reason: reasonAccepted, Message: inUse,
		ObservedGeneration: v.item.meta.Generation, LastTransitionTime: time.Now().UTC().Format(time.RFC3339),
	}
	if v.err != nil {
		c.Status, c.Reason, c.Message = "False", reasonInvalid, message(v.item.key, v.err)
	}
	if was, ok := v.has(); ok && was.Status == c.Status && was.LastTransitionTime != "" {
		c.LastTransitionTime = was.LastTransitionTime
	}
	return c
}

func (v verdict) has() (condition, bool) {
	for _, c := range v.item.conditions {
		if c.Type == accepted {
			return c, true
		}
	}
	return condition{}, false
}

// said tells whether the object's status says it already.
func said(v verdict) bool {
	was, ok := v.has()
	return ok && was == v.wanted()
}

// write applies the condition, server-side: what others have in the status stays.
func (p *reporter) write(ctx context.Context, v verdict) error {
	key := v.item.key
	_, name := inKubernetes(key)
	body, err := json.Marshal(map[string]any{
		"apiVersion": catalog.Version, "kind": key.Kind,
		"metadata": map[string]string{"name": name, "uid": v.item.meta.UID},
		"status":   statusOf{Conditions: []condition{v.wanted()}},
	})
	if err != nil {
		return fmt.Errorf("status of %s: %w", where(key), err)
	}
	_, err = p.api.Call(ctx, apiserver.Request{
		Verb: "patch", Method: http.MethodPatch, Path: objectPath(key) + "/status", ContentType: "application/apply-patch+yaml",
		Query: url.Values{"fieldManager": {apiserver.FieldManager + "-status"}, "force": {"true"}}, Body: body,
	})
	if err == nil {
		p.mu.Lock()
		p.written[key] = v.item.meta.revision()
		p.mu.Unlock()
	}
	return err
}

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
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

// The reasons of the condition, and its text for an object that is in use.
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
	api *apiserver.Server
	log *slog.Logger

	started sync.Once
	inbox   *live.Inbox[verdicts]
}

// verdicts is what is to be said, and was.
type verdicts struct {
	pending map[catalog.Key]verdict
	count   int                    // of all that came to be pending
	written map[catalog.Key]string // revision that was reported last
}

// verdict is what is to be said of an object.
type verdict struct {
	item item
	err  error
	came int // the later, the higher
}

func newReporter(api *apiserver.Server, log *slog.Logger) *reporter {
	return &reporter{api: api, log: log, inbox: live.NewInbox(verdicts{pending: map[catalog.Key]verdict{}, written: map[catalog.Key]string{}})}
}

// start lets the reporter run until the store is closed.
func (p *reporter) start(s *Store) {
	p.started.Do(func() {
		go func() {
			_ = s.life.Do(context.Background(), func(ctx context.Context) error { // else it has been closed meanwhile
				p.run(ctx)
				return nil
			})
		}()
	})
}

// report says what became of an object. It never waits.
func (p *reporter) report(i item, err error) {
	p.inbox.Note(func(all *verdicts) {
		i.value = nil // is not needed any more
		v := verdict{item: i, err: err}
		switch {
		case all.written[i.key] == i.meta.revision():
		case said(v):
			all.written[i.key] = i.meta.revision()
			delete(all.pending, i.key)
		default:
			all.push(v)
		}
	})
}

// forget forgets an object that has been deleted.
func (p *reporter) forget(key catalog.Key) {
	p.inbox.Look(func(all *verdicts) {
		delete(all.pending, key)
		delete(all.written, key)
	})
}

// next takes the newest verdict.
func (p *reporter) next() (v verdict, ok bool) {
	p.inbox.Look(func(all *verdicts) {
		for _, other := range all.pending {
			if other.came > v.came {
				v, ok = other, true
			}
		}
		delete(all.pending, v.item.key)
	})
	return v, ok
}

// again puts a verdict back, unless there is a newer one.
func (p *reporter) again(v verdict) {
	p.inbox.Look(func(all *verdicts) {
		if _, newer := all.pending[v.item.key]; !newer {
			all.push(v)
		}
	})
}

func (all *verdicts) push(v verdict) {
	all.count++
	v.came = all.count
	all.pending[v.item.key] = v
}

func (p *reporter) run(ctx context.Context) {
	told := 0 // code of the failure that was logged last
	for ctx.Err() == nil {
		v, ok := p.next()
		if !ok {
			select {
			case <-p.inbox.News():
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
		p.inbox.Look(func(all *verdicts) { all.written[key] = v.item.meta.revision() })
	}
	return err
}

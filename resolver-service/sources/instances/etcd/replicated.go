package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// replicated is what other replicas have written, as far as it is known. Keys are below the
// root.
type replicated struct {
	mu            sync.Mutex
	known         map[string]other
	held          map[int64]int    // how many known keys each replica has, by its first lease
	present       map[int64]member // the replicas that are there, by their first leases
	refused       map[string]error
	refusal       bool // refused has changed since it was last told
	previousEnded bool // our previous run has ended, and what it wrote has gone
	clock         topology.Clock
}

// other is what stands under a key that is not ours.
type other struct {
	instance catalog.Instance
	lease    int64 // the first of its replica
	revision int64
	// orphanedUntil is until when it stands though it is in etcd no more; see reset.
	orphanedUntil time.Time
}

func newReplicated() *replicated {
	return &replicated{known: map[string]other{}, held: map[int64]int{}, present: map[int64]member{}, refused: map[string]error{}}
}

// revision is that at which another replica wrote a key; 0 for none.
func (o *replicated) revision(key string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[key].revision
}

// since is when a key's instance registered with another replica; 0 for never.
func (o *replicated) since(key string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[key].instance.Since
}

func (o *replicated) refusals() (all []instances.Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusal = false
	for key, err := range o.refused {
		all = append(all, instances.Refusal{Where: "key " + key, Err: err})
	}
	slices.SortFunc(all, func(a, b instances.Refusal) int { return strings.Compare(a.Where, b.Where) })
	return all
}

// pair is a key below the root with its value, or without one if it is deleted.
type pair struct {
	key      string
	value    []byte
	deleted  bool
	lease    int64 // the first of its replica; 0 for none
	revision int64
}

// apply takes in what has changed, but for what is ours, and returns what of it is news.
func (o *replicated) apply(pairs []pair, ours int64) (c instances.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := make(map[string]int, len(pairs))
	for n, p := range pairs {
		last[p.key] = n
	}
	for n, p := range pairs {
		if last[p.key] != n {
			continue // it was written again
		}
		if strings.HasPrefix(p.key, replicas) {
			o.replica(p)
			continue
		}
		if _, was := o.refused[p.key]; was {
			delete(o.refused, p.key)
			o.refusal = true
		}
		if p.deleted || p.lease == ours {
			o.forget(p.key, &c)
			continue
		}
		i, err := decode(p.key, p.value)
		if err == nil && p.lease == 0 {
			err = errors.New("the key has no lease, so it was not written by a replica, and would stand for ever; delete it")
		}
		if _, known := o.known[p.key]; !known && len(o.known) >= mostKeys {
			err = fmt.Errorf("there are more than %d keys, which is as many as are read; delete those that no replica wrote", mostKeys)
		}
		if err != nil {
			o.forget(p.key, &c)
			if len(o.refused) < mostRefused {
				o.refused[p.key], o.refusal = err, true
			}
			continue
		}
		i.Since = o.clock.Heard(i.Since)
		o.know(p.key, other{instance: i, lease: p.lease, revision: p.revision})
		c.Put = append(c.Put, i)
	}
	return c
}

// Bounds of the replicas, and of the unusable keys, that are remembered.
const (
	mostReplicas = 1000
	mostRefused  = 1000
)

func (o *replicated) know(key string, now other) {
	was, known := o.known[key]
	o.known[key] = now
	o.held[now.lease]++
	if known {
		o.release(was.lease)
	}
}

func (o *replicated) forget(key string, c *instances.Change) {
	was, known := o.known[key]
	if !known {
		return
	}
	delete(o.known, key)
	o.release(was.lease)
	c.Delete = append(c.Delete, topology.KeyOf(&was.instance))
}

// reset takes in everything there is, and returns it as the full set.
//
// Where etcd has lost what it had, or a replica's lease while nobody could be told, the
// replica will have written its keys again within moments, and without them nobody would
// find its instances meanwhile. So what is missing together with its replica stands until
// a time, which is the same however often everything is read meanwhile. What is missing
// alone has been withdrawn.
func (o *replicated) reset(pairs []pair, ours int64, now time.Time, ttl time.Duration) instances.Change {
	o.mu.Lock()
	former, before := o.known, o.present
	o.known, o.held, o.present, o.refused = map[string]other{}, map[int64]int{}, map[int64]member{}, map[string]error{}
	o.mu.Unlock()
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.revision, b.revision) })
	_ = o.apply(pairs, ours)
	there := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		there[p.key] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := instances.Change{Full: true, Put: make([]catalog.Instance, 0, len(o.known))}
	for key, was := range former {
		_, wasThere := before[was.lease]
		_, isThere := o.present[was.lease]
		if there[key] || was.orphanedUntil.IsZero() && (!wasThere || isThere) {
			continue
		}
		if was.orphanedUntil.IsZero() {
			was.orphanedUntil = now.Add(ttl)
		}
		if !now.Before(was.orphanedUntil) {
			continue
		}
		o.know(key, was)
		c.Put = append(c.Put, was.instance)
	}
	for _, p := range pairs {
		if now, known := o.known[p.key]; known {
			c.Put = append(c.Put, now.instance)
		}
	}
	return c
}

// expire withdraws what has stood without its replica for long enough.
func (o *replicated) expire(now time.Time) (c instances.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, was := range o.known {
		if !was.orphanedUntil.IsZero() && !now.Before(was.orphanedUntil) {
			o.forget(key, &c)
		}
	}
	return c
}

// refusing tells whether refusals are others than when they were last asked for.
func (o *replicated) refusing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refusal
}

package static

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const (
	// firstWithin is how long the first set waits for the first answers.
	firstWithin = 2 * time.Second
	// rest is from one change that is told to the next; what comes after a silence waits
	// for nothing.
	rest = 20 * time.Millisecond
)

// round is one Watch. Its goroutine owns the targets. Each check that is due runs in a
// goroutine of its own, which waits until the prober lets it begin.
type round struct {
	ctx     context.Context
	source  *Source
	emit    func(instances.Change) error
	queue   queue
	done    chan outcome
	running sync.WaitGroup

	dirty    bool                // something is to be told
	doubled  []instances.Refusal // addresses that two objects have, which is told and no more
	deleted  []topology.InstanceKey
	unasked  int // targets that hold up the first set
	began    time.Time
	full     bool // the full set has been told
	lastTold time.Time
	due      *time.Timer // of what is first in the queue
	tell     *time.Timer // of what is to be told
}

// outcome is how a check ended.
type outcome struct {
	target *target
	began  time.Time
	err    error
}

func newRound(ctx context.Context, s *Source, emit func(instances.Change) error) *round {
	return &round{
		ctx: ctx, source: s, emit: emit, done: make(chan outcome), began: time.Now(),
		due: time.NewTimer(0), tell: time.NewTimer(firstWithin),
	}
}

// wait returns when no check is under way any more.
func (r *round) wait() {
	r.running.Wait()
	r.due.Stop()
	r.tell.Stop()
	for _, t := range r.source.targets { // for the next Watch
		t.place, t.busy, t.stop, t.soon, t.first = outside, false, nil, false, false
	}
}

func (r *round) run() error {
	for _, t := range r.source.targets {
		t.changed = true
		r.enqueue(t, time.Now())
	}
	_, _, changed := r.source.objects.Follow()
	r.take()
	for {
		if err := r.flush(); err != nil {
			return err
		}
		select {
		case <-changed:
			_, _, changed = r.source.objects.Follow()
			r.take()
		case <-r.due.C:
		case o := <-r.done:
			r.ended(o)
		case <-r.tell.C:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
		r.start()
	}
}

// take compares the objects that there are with what is checked.
func (r *round) take() {
	objects, _ := r.source.objects.Load()
	targets := r.source.targets
	stands := make(map[catalog.Key]bool, len(objects))
	for _, object := range objects {
		key := object.Key()
		stands[key] = true
		old := targets[key]
		if old != nil && old.update(object) {
			r.dirty = r.dirty || old.changed
			if old.soon && !old.busy {
				r.enqueue(old, time.Now())
			}
			continue
		}
		if old != nil {
			r.drop(old, object)
		}
		var ask asker
		if object.Check != nil {
			ask = r.source.prepare(object)
		}
		t := newTarget(object, ask)
		t.told = old != nil && old.told && old.object.App == object.App // under the same name
		targets[key] = t
		r.dirty = true
		r.enqueue(t, time.Now())
	}
	for key, t := range targets {
		if !stands[key] {
			r.drop(t, nil)
			delete(targets, key)
		}
	}
	r.doubled = nil
	for _, d := range catalog.DuplicateAddresses(objects) {
		r.doubled = append(r.doubled, instances.Refusal{Where: d.Instance.Key().String(), Err: d.Problem()})
	}
}

// drop ends the checks of a target. Where another stands in its place under the same
// name, there is nothing to delete.
func (r *round) drop(t *target, next *catalog.AppInstance) {
	t.gone = true
	r.queue.remove(t)
	r.answered(t)
	if t.stop != nil {
		t.stop()
	}
	if t.told && (next == nil || next.App != t.object.App) {
		r.deleted = append(r.deleted, t.key())
		r.dirty = true
	}
}

// answered lets the first set wait for one less.
func (r *round) answered(t *target) {
	if t.first {
		t.first = false
		r.unasked--
	}
}

// enqueue lets a target be asked at a time.
func (r *round) enqueue(t *target, at time.Time) {
	if t.ask == nil {
		return
	}
	if !t.asked && !t.first {
		t.first = true
		r.unasked++
	}
	t.soon = false
	r.queue.put(t, at)
}

// start begins the checks that are due.
func (r *round) start() {
	for {
		now := time.Now()
		t, at := r.queue.next(now)
		if t == nil {
			if !at.IsZero() {
				r.due.Reset(at.Sub(now))
			}
			return
		}
		r.begin(t)
	}
}

// begin lets a check wait for its turn, and then asks.
func (r *round) begin(t *target) {
	object := t.object // t may have another one when the check ends
	ctx, cancel := context.WithCancel(r.ctx)
	t.busy, t.stop = true, cancel
	subject := probe.Subject{App: object.AppRef(), Host: object.Address.Addr(), Failing: t.failing}
	r.running.Go(func() {
		defer cancel()
		began, err := r.ask(ctx, subject, object, t.ask)
		select {
		case r.done <- outcome{t, began, err}:
		case <-r.ctx.Done():
		}
	})
}

// ask waits and asks. Time begins to count once the check begins.
func (r *round) ask(ctx context.Context, s probe.Subject, object *catalog.AppInstance, ask asker) (began time.Time, err error) {
	turn, done, err := r.source.prober.Wait(ctx, s)
	if err != nil {
		return time.Now(), err // of a target that is gone
	}
	defer done()
	began = time.Now()
	timeout := object.Check.Timeout
	turn, cancel := context.WithTimeoutCause(turn, timeout, timedOut(timeout))
	defer cancel()
	if err = ask(turn); err != nil && turn.Err() != nil {
		err = explain(object, context.Cause(turn))
	}
	return began, err
}

// ended takes in how a check ended.
func (r *round) ended(o outcome) {
	t := o.target
	t.busy, t.stop = false, nil
	if t.gone {
		return
	}
	first := !t.asked
	r.answered(t)
	t.result(o.err)
	r.dirty = r.dirty || t.changed
	next := time.Now()
	if !t.soon {
		next = later(o.began, t.object.Check.Interval, first, next)
	}
	r.enqueue(t, next)
}

// later is when the next check is due. Checks that began together drift apart: the second comes at
// any time within the interval, and each after that up to a sixth early or an eighth late.
func later(began time.Time, interval time.Duration, first bool, now time.Time) time.Time {
	pause := live.Jitter(interval + interval/8)
	if first {
		pause = interval/10 + rand.N(interval*9/10+1)
	}
	next := began.Add(pause)
	if next.Before(now) {
		return now
	}
	return next
}

// flush tells what has changed, if it is time.
func (r *round) flush() error {
	now := time.Now()
	if r.full && !r.dirty || !r.full && r.unasked > 0 && now.Sub(r.began) < firstWithin {
		return nil
	}
	if wait := r.lastTold.Add(rest).Sub(now); wait > 0 {
		r.tell.Reset(wait)
		return nil
	}
	change := r.news()
	r.full, r.dirty, r.lastTold, r.deleted = true, false, now, nil
	return r.emit(change)
}

// news is what has changed since it was told last.
func (r *round) news() instances.Change {
	c := instances.Change{Full: !r.full}
	if r.full {
		c.Delete = r.deleted
	}
	for _, t := range r.source.targets {
		if t.changed {
			c.Put = append(c.Put, t.instance())
			if t.refuses() {
				t.refused = t.refusal()
			}
			t.changed, t.told = false, true
		}
		if t.refuses() {
			c.Refused = append(c.Refused, t.refused)
		}
	}
	c.Remarks = r.doubled
	slices.SortStableFunc(c.Refused, func(a, b instances.Refusal) int { return strings.Compare(a.Where, b.Where) })
	return c
}

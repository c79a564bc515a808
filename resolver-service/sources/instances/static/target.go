package static

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// asker asks an instance once whether it is ready. It gives up when ctx ends.
type asker func(ctx context.Context) error

// target is one instance and what is known of it. It belongs to the goroutine of Watch.
type target struct {
	object *catalog.AppInstance
	ask    asker // nil: it is always ready

	ready   bool
	asked   bool      // once at least
	failing bool      // the last time
	streak  int       // how many times in a row it ended as the last time
	why     string    // the last failure
	since   time.Time // it is not ready

	due   time.Time          // of the next check
	place int                // in the queue; outside it is not there
	busy  bool               // being asked, or waiting for its turn
	stop  context.CancelFunc // of the check that is under way
	soon  bool               // to be asked again as soon as it is not busy
	first bool               // the first set waits for it
	gone  bool               // the object is, or asks another question by now

	told    bool              // to whoever watches
	changed bool              // since then
	refused instances.Refusal // as it was told
}

const outside = -1

func newTarget(object *catalog.AppInstance, ask asker) *target {
	return &target{object: object, ask: ask, ready: ask == nil, place: outside, changed: true}
}

// result takes in how a check ended.
func (t *target) result(err error) {
	check := t.object.Check
	if failed := err != nil; failed != t.failing || !t.asked {
		t.failing, t.streak = failed, 0
		t.changed = t.changed || !t.ready
	}
	t.asked = true
	t.streak++
	was, why := t.ready, t.why
	if was || t.since.IsZero() {
		t.since = time.Now()
	}
	if t.why = ""; t.failing {
		t.why = err.Error()
	}
	switch {
	case t.failing && t.streak >= check.UnhealthyAfter:
		t.ready = false
	case !t.failing && t.streak >= check.HealthyAfter:
		t.ready = true
	}
	t.changed = t.changed || t.ready != was || !t.ready && t.why != why
}

// refuses tells whether it has been asked and is not ready.
func (t *target) refuses() bool { return t.asked && !t.ready }

// refusal is why it is not ready. It reads the same until that changes.
func (t *target) refusal() instances.Refusal {
	r := instances.Refusal{Where: t.object.Key().String()}
	switch {
	case t.failing:
		r.Err = fmt.Errorf("%s; not ready since %s, ready again after %s", t.why, t.since.UTC().Format(time.RFC3339), t.wanted())
	default:
		r.Err = fmt.Errorf("it answers; not ready since %s, ready again after %s", t.since.UTC().Format(time.RFC3339), t.wanted())
	}
	return r
}

// wanted is what it takes to be ready.
func (t *target) wanted() string {
	if n := t.object.Check.HealthyAfter; n > 1 {
		return fmt.Sprintf("%d checks in a row that succeed", n)
	}
	return "a check that succeeds"
}

func (t *target) instance() catalog.Instance {
	return catalog.Instance{
		ID: t.object.Name, App: t.object.AppRef(), Address: t.object.Address, Zone: t.object.Zone, Version: t.object.Version, Draining: !t.ready,
	}
}

func (t *target) key() topology.InstanceKey {
	return topology.InstanceKey{App: t.object.AppRef(), ID: t.object.Name}
}

// update takes in another version of the object, and tells whether what was found out
// holds for it too: it does if the same instance is asked the same question.
func (t *target) update(object *catalog.AppInstance) bool {
	was := t.object
	if was.App != object.App || was.Address != object.Address || !sameQuestion(was.Check, object.Check) {
		return false
	}
	t.object = object
	t.changed = t.changed || was.Zone != object.Zone || was.Version != object.Version
	if t.ask != nil && *was.Check != *object.Check {
		t.soon, t.changed = true, true
	}
	return true
}

func sameQuestion(a, b *catalog.HealthCheck) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Interval, x.Timeout, x.HealthyAfter, x.UnhealthyAfter = y.Interval, y.Timeout, y.HealthyAfter, y.UnhealthyAfter
	return x == y
}

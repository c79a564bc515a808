package consulapi

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Bounds of a check, which are Consul's.
const (
	shortestInterval = time.Second
	defaultTimeout   = 10 * time.Second
	longestTimeout   = time.Minute // Consul has none; a check that is under way takes a place
	shortestReap     = time.Minute // of DeregisterCriticalServiceAfter
)

// eagerAttempts is how often a check that has never succeeded asks once a second, whatever its
// interval: a sidecar registers before it answers.
const eagerAttempts = 30

// check is one that runs. The registry's mu guards it.
type check struct {
	r       *registry
	owner   *inventory
	service *service
	spec    *checkSpec
	shown   *api.HealthCheck // replaced, never changed

	cancel    context.CancelFunc // ends the goroutine that asks; nil without one
	expiry    *time.Timer        // of a TTL
	reaper    *time.Timer        // of the service, while the check is critical
	expires   time.Time          // a timer that fired may be late, and the check renewed meanwhile
	reaps     time.Time
	output    string // the last that a client reported
	passed    int    // in a row
	failed    int    // in a row
	succeeded bool   // ever
	ended     bool
}

// newCheck is a check of a service. It keeps what was found out by one that it replaces.
func (r *registry) newCheck(o *inventory, s *service, spec *checkSpec, old *check) *check {
	index := r.counter.Add(1)
	c := &check{r: r, owner: o, service: s, spec: spec, shown: &api.HealthCheck{
		Node: r.self.Node, CheckID: spec.CheckID, Name: spec.Name, Status: critical, Notes: spec.Notes,
		ServiceID: s.def.ID, ServiceName: s.def.Name, ServiceTags: s.node.Tags, Type: spec.kind, CreateIndex: index, ModifyIndex: index,
	}}
	if spec.Status != "" {
		c.shown.Status = spec.Status
	}
	if old != nil {
		c.shown.Status, c.shown.Output, c.shown.CreateIndex = old.shown.Status, old.shown.Output, old.shown.CreateIndex
		c.output, c.succeeded = old.output, old.succeeded
	}
	return c
}

// start begins to run the check, if checks run. It is called with mu held.
func (c *check) start() {
	if c.r.running == nil || c.ended || c.cancel != nil || c.expiry != nil {
		return
	}
	c.schedule()
	if c.spec.kind == "ttl" {
		c.expires = time.Now().Add(c.spec.ttl)
		c.expiry = time.AfterFunc(c.spec.ttl, c.expire)
		return
	}
	ctx, cancel := context.WithCancel(c.r.running)
	c.cancel = cancel
	c.r.checks.Go(func() { c.run(ctx) })
}

// end stops what runs for the check. It waits for nothing.
func (c *check) end() {
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
	for _, t := range []*time.Timer{c.expiry, c.reaper} {
		if t != nil {
			t.Stop()
		}
	}
}

// run asks again and again until ctx ends.
func (c *check) run(ctx context.Context) {
	interval, timeout := max(c.spec.interval, shortestInterval), min(c.spec.timeout, longestTimeout)
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	subject := c.r.targets.subject(c.owner.app, c.spec, c.service.sender)
	for n := 0; ; n++ {
		turn, done, err := c.r.targets.prober.Wait(ctx, subject)
		if err != nil {
			return // ctx has ended
		}
		once, cancel := context.WithTimeout(turn, timeout)
		status, output := c.spec.ask(once, subject.Unverified)
		cancel()
		done()
		subject.Failing = status == critical
		if ctx.Err() != nil {
			return
		}
		wait := live.Jitter(interval)
		if !c.result(ctx, status, output) && n < eagerAttempts {
			wait = min(wait, shortestInterval)
		}
		if !live.Sleep(ctx, wait) {
			return
		}
	}
}

// result takes in how an attempt ended, and tells whether any has succeeded.
func (c *check) result(ctx context.Context, status, output string) (succeeded bool) {
	c.r.mu.Lock()
	if c.ended {
		c.r.mu.Unlock()
		return true
	}
	before := c.shown.Status
	if status != critical {
		c.passed, c.failed, c.succeeded = c.passed+1, 0, true
		if c.passed < c.spec.SuccessBeforePassing {
			status = before
		}
	} else {
		c.passed, c.failed = 0, c.failed+1
		switch {
		case c.failed >= c.spec.FailuresBeforeCritical:
		case c.failed >= c.spec.FailuresBeforeWarning && c.spec.FailuresBeforeWarning > 0:
			status = warning
		default:
			status = before
		}
	}
	succeeded = c.succeeded
	news := status != before || c.shown.Output == "" // another output alone is none
	if news {
		c.set(status, output)
	}
	c.r.mu.Unlock()
	if news {
		c.r.publishNow(ctx)
	}
	return succeeded
}

// renew takes in what a client says of a TTL check. It is called with mu held.
func (c *check) renew(status, output string) {
	if total := len(output); total > longestOutput {
		output = fmt.Sprintf("%s ... (captured %d of %d bytes)", output[:longestOutput], longestOutput, total)
	}
	c.output = output
	if c.expiry != nil {
		c.expires = time.Now().Add(c.spec.ttl)
		c.expiry.Reset(c.spec.ttl)
	}
	c.set(status, output)
}

// set gives the check its status, if it has another one. It is called with mu held.
func (c *check) set(status, output string) {
	if c.shown.Status == status && c.shown.Output == output {
		return
	}
	next := *c.shown
	changed := next.Status != status
	next.Status, next.Output = status, output
	next.ModifyIndex = c.r.counter.Add(1)
	c.shown = &next
	c.r.refresh(c.owner)
	if changed { // a client that reports the time as output must not write to the disk each time
		c.schedule()
		c.r.store.save(c.owner.app, c.service)
	}
}

// schedule has the service deregistered once the check has been critical for too long. It is
// called with mu held.
func (c *check) schedule() {
	if c.reaper != nil {
		c.reaper.Stop()
		c.reaper = nil
	}
	if c.shown.Status == critical && c.spec.reap > 0 && c.r.running != nil {
		after := max(c.spec.reap, shortestReap)
		c.reaps = time.Now().Add(after)
		c.reaper = time.AfterFunc(after, c.reap)
	}
}

// reap deregisters the service of a check that has been critical for too long.
func (c *check) reap() {
	c.r.mu.Lock()
	ctx := c.r.running
	if ctx == nil || c.ended || c.shown.Status != critical || time.Now().Before(c.reaps) {
		c.r.mu.Unlock()
		return
	}
	c.r.remove(c.owner, c.service)
	c.r.mu.Unlock()
	c.r.often.Info("critical "+c.owner.app.String(), "deregistered a service: a check of it has been critical for too long",
		"app", c.owner.app.String(), "service", c.service.def.ID, "check", c.spec.CheckID, "for", c.spec.reap)
	c.r.publishNow(ctx)
}

// expire makes a TTL check critical that was not renewed.
func (c *check) expire() {
	c.r.mu.Lock()
	ctx := c.r.running
	if ctx == nil || c.ended || time.Now().Before(c.expires) {
		c.r.mu.Unlock()
		return
	}
	output := "TTL expired"
	if c.output != "" {
		output += " (last output before timeout follows): " + c.output
	}
	c.set(critical, output)
	c.r.mu.Unlock()
	c.r.publishNow(ctx)
}

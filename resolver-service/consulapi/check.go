package consulapi

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/live"
)

// Bounds of a check, which are Consul's.
const (
	shortestInterval = time.Second
	defaultTimeout   = 10 * time.Second
	longestTimeout   = time.Minute // Consul has none; a check that is under way takes a place
	shortestReap     = time.Minute // of DeregisterCriticalServiceAfter
	mostRedirects    = 10
)

// eager is how often a check that has never succeeded asks once a second, whatever its
// interval: a sidecar registers before it answers.
const eager = 30

// check is one that runs. It is guarded by the registry's mu.
type check struct {
	id      string
	service *service
	fields  *checkFields
	shown   *healthCheck // replaced, never changed

	cancel    context.CancelFunc // of what asks; nil where nothing does
	expiry    *time.Timer        // of a TTL
	reap      *time.Timer        // of the service, while the check is critical
	due       time.Time          // when expiry is to act; one that fired may be late, and renewed meanwhile
	reapDue   time.Time          // the same of reap
	output    string             // the last that a client told
	passed    int                // in a row
	failed    int                // in a row
	succeeded bool               // ever
	ended     bool
	size      int // of the definition, where it is not part of the service's
}

// end stops what runs for the check. It waits for nothing.
func (c *check) end() {
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
	for _, t := range []*time.Timer{c.expiry, c.reap} {
		if t != nil {
			t.Stop()
		}
	}
}

// newCheck is a check as it is registered.
func (r *registry) newCheck(s *service, id, name string, f *checkFields) *check {
	index := r.counter.Add(1)
	c := &check{id: id, service: s, fields: f}
	c.shown = &healthCheck{
		Node: r.self.Node, CheckID: id, Name: name, Status: critical, Notes: f.Notes,
		ServiceID: s.def.ID, ServiceName: s.def.Name, ServiceTags: s.def.Tags, Type: f.kind(),
		indexes: indexes{index, index},
	}
	if c.shown.ServiceTags == nil {
		c.shown.ServiceTags = []string{}
	}
	if f.Status != "" {
		c.shown.Status = f.Status
	}
	return c
}

// replaceChecks gives a service that is registered its checks: those of its definition,
// and those of the service that it replaces, unless they are to go. A check that stays
// keeps its status. It is called with mu held, and changes nothing where it fails.
func (r *registry) replaceChecks(o *owned, s, old *service, replace bool) error {
	next := map[string]*check{}
	for n, d := range s.def.all() {
		if err := d.runnable(); err != nil {
			return err
		}
		id := s.def.checkID(n)
		name := d.Name
		if name == "" {
			name = "Service '" + s.def.Name + "' check"
		}
		if other := o.checks[id]; other != nil && other.service != old {
			return &apiError{400, "Invalid check: the ID " + quoted(id) + " is that of a check of service " + quoted(other.service.def.ID)}
		}
		c := r.newCheck(s, id, name, &d.checkFields)
		if d.Interval != 0 {
			c.shown.Interval = time.Duration(d.Interval).String()
		}
		if d.Timeout != 0 {
			c.shown.Timeout = time.Duration(d.Timeout).String()
		}
		next[id] = c
	}
	if old != nil {
		if !replace && joined(next, old.checks) > mostChecks {
			return tooManyChecks()
		}
		r.takeOver(o, s, old, next, replace)
	}
	for id, c := range next {
		s.checks[id], o.checks[id] = c, c
		r.start(o, c)
	}
	return nil
}

// joined is how many checks a service has with those of before that stay.
func joined(next, old map[string]*check) int {
	n := len(next)
	for id := range old {
		if next[id] == nil {
			n++
		}
	}
	return n
}

func tooManyChecks() error {
	return &apiError{429, fmt.Sprintf("the service would have more than %d checks, those of before included; deregister some, or register it with ?replace-existing-checks", mostChecks)}
}

// takeOver lets checks that stay keep what was found out.
func (r *registry) takeOver(o *owned, s, old *service, next map[string]*check, replace bool) {
	for id, was := range old.checks {
		was.end()
		delete(o.checks, id)
		if c := next[id]; c != nil {
			c.shown.Status, c.shown.Output, c.shown.CreateIndex = was.shown.Status, was.shown.Output, was.shown.CreateIndex
			c.output, c.succeeded = was.output, was.succeeded
		} else if !replace {
			kept := *was
			shown := *was.shown
			shown.ServiceName, shown.ServiceTags = s.def.Name, s.def.Tags
			if shown.ServiceTags == nil {
				shown.ServiceTags = []string{}
			}
			kept.service, kept.shown, kept.ended, kept.cancel, kept.expiry, kept.reap = s, &shown, false, nil, nil, nil
			if kept.size == 0 {
				kept.size = sizeOf(kept.fields) // it is no part of this definition
			}
			next[id] = &kept
		}
	}
}

// addCheck registers one more check of a service.
func (r *registry) addCheck(ctx context.Context, o *owned, reg *checkRegistration) error {
	size := sizeOf(&reg.checkFields)
	r.mu.Lock()
	s, was := o.services[reg.ServiceID], o.checks[reg.ID]
	instead := 0
	if was != nil {
		instead = was.size
	}
	var err error
	switch {
	case s == nil:
		err = &apiError{404, fmt.Sprintf("ServiceID %q does not exist", reg.ServiceID)}
	case was != nil && was.service != s:
		err = &apiError{400, "Invalid check: the ID " + quoted(reg.ID) + " is that of a check of another service"}
	case was == nil && len(s.checks) >= mostChecks:
		err = tooManyChecks()
	default:
		err = cmp.Or(r.checkTarget(o.app, &reg.checkFields, s.def.Address, s.sender), o.room(size, instead))
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	c := r.newCheck(s, reg.ID, reg.Name, &reg.checkFields)
	c.size = size
	c.shown.Interval, c.shown.Timeout = time.Duration(reg.Interval).String(), time.Duration(reg.Timeout).String()
	if was != nil {
		was.end()
		c.shown.CreateIndex = was.shown.CreateIndex
	}
	s.checks[reg.ID], o.checks[reg.ID] = c, c
	r.start(o, c)
	r.changedService(o, s)
	r.mu.Unlock()
	return r.tell(ctx)
}

// removeCheck deregisters a check.
func (r *registry) removeCheck(ctx context.Context, o *owned, id string) error {
	r.mu.Lock()
	c := o.checks[id]
	if c == nil {
		r.mu.Unlock()
		return unknownCheck(id)
	}
	c.end()
	delete(o.checks, id)
	delete(c.service.checks, id)
	r.changedService(o, c.service)
	r.mu.Unlock()
	return r.tell(ctx)
}

func unknownCheck(id string) error {
	return &apiError{404, fmt.Sprintf("Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)}
}

// update takes in what a client says of a TTL check.
func (r *registry) update(ctx context.Context, o *owned, id, status, output string) error {
	r.mu.Lock()
	c := o.checks[id]
	switch {
	case c == nil:
		r.mu.Unlock()
		return unknownCheck(id)
	case c.fields.kind() != "ttl":
		r.mu.Unlock()
		return &apiError{500, fmt.Sprintf("CheckID %q does not have associated TTL", id)}
	}
	most := longestOutput
	if n := c.fields.OutputMaxSize; n > 0 {
		most = min(n, longestOutput)
	}
	if total := len(output); total > most {
		output = fmt.Sprintf("%s ... (captured %d of %d bytes)", output[:most], most, total)
	}
	c.output = output
	if c.expiry != nil {
		c.due = time.Now().Add(time.Duration(c.fields.TTL))
		c.expiry.Reset(time.Duration(c.fields.TTL))
	}
	r.set(o, c, status, output)
	r.mu.Unlock()
	return r.tell(ctx)
}

// set gives a check its status, if it has another one. It is called with mu held.
func (r *registry) set(o *owned, c *check, status, output string) {
	if c.shown.Status == status && c.shown.Output == output {
		return
	}
	next := *c.shown
	changed := next.Status != status
	next.Status, next.Output = status, output
	next.ModifyIndex = r.counter.Add(1)
	c.shown = &next
	if !changed {
		r.publish(o) // an output is no reason to write to the disk: who tells the time in it would do so all the time
		return
	}
	r.schedule(o, c)
	r.changedService(o, c.service)
}

// changedService shows and saves a service as it is. It is called with mu held.
func (r *registry) changedService(o *owned, s *service) {
	r.publish(o)
	r.save(o, s)
}

// start begins to run a check, if checks run. It is called with mu held.
func (r *registry) start(o *owned, c *check) {
	if r.running == nil || c.ended || c.cancel != nil || c.expiry != nil {
		return
	}
	r.schedule(o, c)
	if c.fields.kind() == "ttl" {
		c.due = time.Now().Add(time.Duration(c.fields.TTL))
		c.expiry = time.AfterFunc(time.Duration(c.fields.TTL), func() { r.expired(o, c) })
		return
	}
	ask := c.fields.asker(r.discreet(c.fields, c.service.sender))
	if ask == nil {
		return // one of maintenance
	}
	ctx, cancel := context.WithCancel(r.running)
	c.cancel = cancel
	r.checks.Go(func() { r.ask(ctx, o, c, ask) })
}

// schedule lets the service be deregistered once the check has been critical for too
// long. It is called with mu held.
func (r *registry) schedule(o *owned, c *check) {
	if c.reap != nil {
		c.reap.Stop()
		c.reap = nil
	}
	after := time.Duration(c.fields.DeregisterCriticalServiceAfter)
	if c.shown.Status == critical && after > 0 && r.running != nil {
		after = max(after, shortestReap)
		c.reapDue = time.Now().Add(after)
		c.reap = time.AfterFunc(after, func() { r.reap(o, c) })
	}
}

// reap deregisters the service of a check that has been critical for too long.
func (r *registry) reap(o *owned, c *check) {
	r.mu.Lock()
	ctx := r.running
	if ctx == nil || c.ended || c.shown.Status != critical || time.Now().Before(c.reapDue) {
		r.mu.Unlock()
		return
	}
	r.remove(o, c.service)
	r.mu.Unlock()
	r.often.Info("critical "+o.app.String(), "deregistered a service: a check of it has been critical for too long", "app", o.app.String(),
		"service", c.service.def.ID, "check", c.id, "for", time.Duration(c.fields.DeregisterCriticalServiceAfter))
	r.settled(ctx)
}

// expired makes a TTL check critical that was not renewed.
func (r *registry) expired(o *owned, c *check) {
	r.mu.Lock()
	ctx := r.running
	if ctx == nil || c.ended || time.Now().Before(c.due) {
		r.mu.Unlock()
		return
	}
	output := "TTL expired"
	if c.output != "" {
		output += " (last output before timeout follows): " + c.output
	}
	r.set(o, c, critical, output)
	r.mu.Unlock()
	r.settled(ctx)
}

// ask asks again and again until ctx ends.
func (r *registry) ask(ctx context.Context, o *owned, c *check, ask asker) {
	interval := max(time.Duration(c.fields.Interval), shortestInterval)
	timeout := min(time.Duration(c.fields.Timeout), longestTimeout)
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	subject := r.subject(o.app, c.fields, c.service.sender)
	for n := 0; ; n++ {
		turn, done, err := r.prober.Wait(ctx, subject)
		if err != nil {
			return // ctx has ended
		}
		once, cancel := context.WithTimeout(turn, timeout)
		status, output := ask(once)
		cancel()
		done()
		subject.Failing = status == critical
		if ctx.Err() != nil {
			return
		}
		succeeded := r.result(ctx, o, c, status, output)
		wait := time.Duration((0.9 + 0.2*rand.Float64()) * float64(interval))
		if !succeeded && n < eager {
			wait = min(wait, shortestInterval)
		}
		if !live.Sleep(ctx, wait) {
			return
		}
	}
}

// result takes in how a check ended, and tells whether it has ever succeeded.
func (r *registry) result(ctx context.Context, o *owned, c *check, status, output string) bool {
	r.mu.Lock()
	if c.ended {
		r.mu.Unlock()
		return true
	}
	f := c.fields
	before := c.shown.Status
	if status != critical {
		c.passed, c.failed, c.succeeded = c.passed+1, 0, true
		if c.passed < f.SuccessBeforePassing {
			status = before
		}
	} else {
		c.passed, c.failed = 0, c.failed+1
		switch {
		case c.failed >= f.FailuresBeforeCritical:
		case c.failed >= f.FailuresBeforeWarning && f.FailuresBeforeWarning > 0:
			status = warning
		default:
			status = before
		}
	}
	succeeded := c.succeeded
	if status == before && c.shown.Output != "" {
		r.mu.Unlock() // what it answers this time is no news
		return succeeded
	}
	r.set(o, c, status, output)
	r.mu.Unlock()
	r.settled(ctx)
	return succeeded
}

// shortened is a text of at most so many bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// maintenanceCheck begins the ID of the check that a service in maintenance has.
const maintenanceCheck = "_service_maintenance:"

// maintain takes a service out of service, or back.
func (r *registry) maintain(ctx context.Context, o *owned, id string, enable bool, reason string) error {
	r.mu.Lock()
	s := o.services[id]
	if s == nil {
		r.mu.Unlock()
		return &apiError{http.StatusNotFound, fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)}
	}
	name := maintenanceCheck + id
	switch there := o.checks[name] != nil; {
	case enable && !there:
		if reason == "" {
			reason = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message."
		}
		c := r.newCheck(s, name, "Service Maintenance Mode", &checkFields{Notes: shortened(reason, longestOutput)})
		c.shown.Type = maintenance
		s.checks[name], o.checks[name] = c, c
		r.changedService(o, s)
	case !enable && there:
		delete(s.checks, name)
		delete(o.checks, name)
		r.changedService(o, s)
	}
	r.mu.Unlock()
	return r.tell(ctx)
}

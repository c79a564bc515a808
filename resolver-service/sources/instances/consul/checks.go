package consul

import (
	"context"
	"fmt"

	"github.com/hashicorp/consul/api"
)

type checkKey struct{ node, id string }

// checked notes the services whose checks have come to fail, or do so no more. A check
// without a service is of a node.
func (w *watch) checked(a answer) {
	was, now := w.failing[a.status], make(map[checkKey]*api.HealthCheck, len(a.checks))
	for _, c := range a.checks {
		key := checkKey{c.Node, c.CheckID}
		if now[key] = c; was[key] == nil {
			w.concerns(c)
		}
	}
	for key, c := range was {
		if now[key] == nil {
			w.concerns(c)
		}
	}
	w.failing[a.status] = now
}

func (w *watch) concerns(c *api.HealthCheck) {
	if c.ServiceID != "" {
		if w.names[c.ServiceName] {
			w.urgent[c.ServiceName] = true
		}
		return
	}
	for name, s := range w.services {
		if s.nodes[c.Node] {
			w.urgent[name] = true
		}
	}
	for _, name := range w.reading { // perhaps they were read before
		w.urgent[name] = true
	}
}

// surveyedCheck is what is kept of a check.
type surveyedCheck struct {
	service string
	index   uint64 // of its last change
}

// survey reads all checks of services. Where most registrations have one, it tells by one
// question which services have an instance more or less.
func (s *Source) survey(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	checks, _, err := s.client.Health().State(api.HealthAny, (&api.QueryOptions{Filter: `ServiceName != ""`}).WithContext(ctx))
	if err != nil {
		return result{err: fmt.Errorf("read all checks: %w", err)}
	}
	return result{checks: checks}
}

// compare notes the services with checks that are new, changed or gone since they were
// looked through last. It only makes things quicker: what it misses has its turn.
func (w *watch) compare(checks api.HealthChecks) {
	was, now := w.surveyed, map[checkKey]surveyedCheck{}
	note := func(service string) {
		if was != nil && w.names[service] {
			w.urgent[service] = true
		}
	}
	for _, c := range checks {
		if !w.names[c.ServiceName] {
			continue
		}
		key := checkKey{c.Node, c.CheckID}
		if now[key] = (surveyedCheck{c.ServiceName, c.ModifyIndex}); was[key] != now[key] {
			note(c.ServiceName)
		}
	}
	for key, c := range was {
		if _, stands := now[key]; !stands {
			note(c.service)
		}
	}
	w.surveyed = now
}

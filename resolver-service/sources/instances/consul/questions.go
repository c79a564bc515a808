package consul

import (
	"context"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

// answer is what a question that waits has heard.
type answer struct {
	names  map[string]bool  // of all services that count; nil for an answer about checks
	status string           // of the checks that it is about
	checks api.HealthChecks // all that have it
	err    error            // the last answer: nothing is asked after it
}

// ask begins a question, which is asked again and again, and answers when the answer is
// another one. The next is asked when the answer has been taken: a reader that is busy is
// asked nothing. None waits before the full set is in: Consul keeps a question that was
// given up, and its connection, until the wait is over, and a reader that fails again and
// again must not run out of connections.
func (w *watch) ask(ctx context.Context, what string, question func(*api.QueryOptions) (answer, *api.QueryMeta, error)) {
	w.asking.Go(func() {
		var index uint64
		for {
			var a answer
			var meta *api.QueryMeta
			now, err := agent.BlockingQuery(ctx, what, index, func(options *api.QueryOptions) (*api.QueryMeta, error) {
				var err error
				a, meta, err = question(options)
				return meta, err
			})
			if err != nil {
				a = answer{err: fmt.Errorf("wait for a change of %s: %w", what, err)}
			}
			select {
			case w.answers <- a:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			index = now
			select {
			case <-w.begun:
			case <-ctx.Done():
				return
			}
		}
	})
}

// askServices waits for registrations.
func (w *watch) askServices(ctx context.Context) {
	filter := w.source.config.filter()
	w.ask(ctx, "services", func(options *api.QueryOptions) (answer, *api.QueryMeta, error) {
		options.Filter, options.RequireConsistent = filter, true // what it does not name is gone
		services, meta, err := w.source.client.Catalog().Services(options)
		names := make(map[string]bool, len(services))
		for name := range services {
			names[name] = true
		}
		return answer{names: names}, meta, err
	})
}

// askChecks waits for checks to come to have a status, or to have it no more.
func (w *watch) askChecks(ctx context.Context, status string) {
	w.ask(ctx, status+" checks", func(options *api.QueryOptions) (answer, *api.QueryMeta, error) {
		checks, meta, err := w.source.client.Health().State(status, options)
		return answer{status: status, checks: checks}, meta, err
	})
}

// visible tells whether the token shows anything at all. To who has none, Consul does not
// say that it leaves everything out; but there is always a service of its own.
func (s *Source) visible(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	own, meta, err := s.client.Catalog().Service("consul", "", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err == nil {
		err = agent.Believe(meta)
	}
	if err == nil && len(own) == 0 {
		err = agent.ErrHidden
	}
	if err != nil {
		return fmt.Errorf("read service consul, which every server has: %w", err)
	}
	return nil
}

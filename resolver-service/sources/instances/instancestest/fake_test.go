package instancestest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const address = "fake.example:1"

// server is a server of instances in memory. Its state is replaced, never changed.
type server struct{ state live.Value[state] }

type state struct {
	instances map[topology.InstanceKey]catalog.Instance
	refused   []instances.Refusal
	fails     bool
	cut       bool
	restarts  int
}

func newServer() *server {
	s := &server{}
	s.state.Store(state{instances: map[topology.InstanceKey]catalog.Instance{}})
	return s
}

func (s *server) change(f func(*state)) {
	now, _ := s.state.Load()
	now.instances = maps.Clone(now.instances)
	f(&now)
	s.state.Store(now)
}

func key(i catalog.Instance) topology.InstanceKey {
	return topology.InstanceKey{App: i.App, ID: i.ID}
}

// source is a good source, unless it has a fault.
type source struct {
	server *server
	fault  fault
}

var errAway = errors.New("watch instances at " + address + ": connection refused")

func (s source) Name() string {
	if s.fault.name != nil {
		return s.fault.name()
	}
	return "fake"
}

func (s source) Rank() topology.Rank { return topology.Listed }

func (s source) Watch(ctx context.Context, emit func(instances.Change) error) error {
	if s.fault.watch != nil {
		inner := source{server: s.server}
		return s.fault.watch(ctx, inner, emit)
	}
	return s.watch(ctx, emit)
}

func (s source) watch(ctx context.Context, emit func(instances.Change) error) error {
	var was state
	for first := true; ; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now, _, changed := s.server.state.Follow()
		switch {
		case now.fails, !first && now.restarts != was.restarts:
			return errAway
		case now.cut:
			select {
			case <-changed:
			case <-time.After(time.Second):
				return errAway
			case <-ctx.Done():
			}
			continue
		}
		if err := emit(difference(was, now, first)); err != nil {
			return err
		}
		first, was = false, now
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func difference(was, now state, first bool) instances.Change {
	c := instances.Change{Full: first, Refused: now.refused}
	for k, i := range now.instances {
		if before, stood := was.instances[k]; first || !stood || before != i {
			c.Put = append(c.Put, i)
		}
	}
	slices.SortFunc(c.Put, func(a, b catalog.Instance) int { return strings.Compare(line(a), line(b)) })
	for k := range was.instances {
		if _, stands := now.instances[k]; !stands && !first {
			c.Delete = append(c.Delete, k)
		}
	}
	return c
}

// backend is that of a source with a fault, or none.
func backend(f fault) Backend {
	s := newServer()
	during := func(set func(*state, bool)) func(testing.TB) func() {
		return func(testing.TB) func() {
			s.change(func(now *state) { set(now, true) })
			return func() { s.change(func(now *state) { set(now, false) }) }
		}
	}
	put := func(all ...catalog.Instance) {
		s.change(func(now *state) {
			for _, i := range all {
				now.instances[key(i)] = i
			}
		})
	}
	b := Backend{
		Open:  func(testing.TB) instances.Source { return source{s, f} },
		Put:   func(_ testing.TB, all ...catalog.Instance) { put(all...) },
		Drain: func(_ testing.TB, i catalog.Instance) { put(draining(i)) },
		Delete: func(_ testing.TB, all ...catalog.Instance) {
			s.change(func(now *state) {
				for _, i := range all {
					delete(now.instances, key(i))
				}
			})
		},
		Spoil: func(testing.TB) ([]string, func()) {
			s.change(func(now *state) {
				now.refused = []instances.Refusal{{Where: "entry 7", Err: errors.New("no address")}}
			})
			return []string{"entry 7", "no address"}, func() { s.change(func(now *state) { now.refused = nil }) }
		},
		Fail:    during(func(s *state, on bool) { s.fails = on }),
		Cut:     during(func(s *state, on bool) { s.cut = on }),
		Slow:    func(testing.TB, time.Duration) func() { return func() {} },
		Restart: func(testing.TB, bool) { s.change(func(now *state) { now.restarts++ }) },
		Forget:  func(testing.TB) {},
		Denied: func(testing.TB) instances.Source {
			if f.denied != nil {
				return source{s, fault{watch: f.denied}}
			}
			return source{s, fault{watch: func(context.Context, source, func(instances.Change) error) error {
				return fmt.Errorf("watch instances at %s: %w", address, configstore.ErrDenied)
			}}}
		},
		Servers: []string{address}, Secrets: []string{"hunter2"},
	}
	return b
}

// fault is something that a source does wrong, and the specification that must catch it.
type fault struct {
	what   string
	caught string
	watch  func(ctx context.Context, s source, emit func(instances.Change) error) error
	denied func(ctx context.Context, s source, emit func(instances.Change) error) error
	name   func() string
}

// saying bends what is said.
func saying(bend func(c instances.Change) instances.Change) func(context.Context, source, func(instances.Change) error) error {
	return func(ctx context.Context, s source, emit func(instances.Change) error) error {
		return s.watch(ctx, func(c instances.Change) error { return emit(bend(c)) })
	}
}

// failingWith bends how a Watch fails that is not at its end.
func failingWith(bend func(err error, emit func(instances.Change) error) error) func(context.Context, source, func(instances.Change) error) error {
	return func(ctx context.Context, s source, emit func(instances.Change) error) error {
		err := s.watch(ctx, emit)
		if !errors.Is(err, errAway) {
			return err
		}
		return bend(err, emit)
	}
}

func faults() []fault {
	names := 0
	only := func(which func(c *instances.Change)) func(instances.Change) instances.Change {
		return func(c instances.Change) instances.Change { which(&c); return c }
	}
	return []fault{
		{what: "is another each time", caught: "a source has a name and a rank, and keeps them", name: func() string { names++; return fmt.Sprint(names) }},
		{what: "forgets deletions", caught: "the last instance that goes leaves nothing", watch: saying(only(func(c *instances.Change) { c.Delete = nil }))},
		{what: "takes those that drain for gone", caught: "an instance that drains stands, and takes calls again when it is ready", watch: saying(only(func(c *instances.Change) {
			c.Put = slices.DeleteFunc(c.Put, func(i catalog.Instance) bool {
				if i.Draining {
					c.Delete = append(c.Delete, key(i))
				}
				return i.Draining
			})
		}))},
		{what: "takes those that drain for ready", caught: "an instance that drains stands, and takes calls again when it is ready", watch: saying(only(func(c *instances.Change) {
			for i := range c.Put {
				c.Put[i].Draining = false
			}
		}))},
		{what: "has a new instance for each address", caught: "a new address takes the place of the old one", watch: saying(only(func(c *instances.Change) {
			for i := range c.Put {
				c.Put[i].ID += c.Put[i].Address.String()
			}
		}))},
		{what: "hides what it refuses", caught: "bad entries are refused by name, and the rest stand", watch: saying(only(func(c *instances.Change) { c.Refused = nil }))},
		{what: "says no full set", caught: "each Watch begins with the full set", watch: saying(only(func(c *instances.Change) { c.Full = false }))},
		{what: "says nothing of an empty server", caught: "a server without instances is an empty full set", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			return s.watch(ctx, func(c instances.Change) error {
				if c.Full && len(c.Put) == 0 {
					return errAway
				}
				return emit(c)
			})
		}},
		{what: "says the full set in pieces", caught: "each Watch begins with the full set", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			return s.watch(ctx, func(c instances.Change) error {
				if !c.Full || len(c.Put) < 2 {
					return emit(c)
				}
				if err := emit(instances.Change{Full: true, Put: c.Put[:1]}); err != nil {
					return err
				}
				return emit(instances.Change{Put: c.Put[1:]})
			})
		}},
		{what: "takes a failure for empty", caught: "failing is not empty, and the error says what server", watch: failingWith(func(err error, emit func(instances.Change) error) error {
			return errors.Join(emit(instances.Change{Full: true}), err)
		})},
		{what: "takes a lost connection for empty", caught: "a server's kill -9 takes nothing away", watch: failingWith(func(err error, emit func(instances.Change) error) error {
			err = errors.Join(emit(instances.Change{Full: true}), err)
			time.Sleep(500 * time.Millisecond) // or the full set that comes next hides it
			return err
		})},
		{what: "is empty until it is heard", caught: "a server that is away from the start says nothing, and is heard when it is there", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			if err := emit(instances.Change{Full: true}); err != nil {
				return err
			}
			return s.watch(ctx, emit)
		}},
		{what: "shows a secret", caught: "failing is not empty, and the error says what server", watch: failingWith(func(err error, _ func(instances.Change) error) error {
			return fmt.Errorf("with hunter2: %w", err)
		})},
		{what: "does not name its server", caught: "failing is not empty, and the error says what server", watch: failingWith(func(error, func(instances.Change) error) error {
			return errors.New("connection refused")
		})},
		{what: "does not notice a cut", caught: "a Watch finds out by itself that its link is cut, and what was missed comes", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			for {
				if err := s.watch(ctx, emit); !errors.Is(err, errAway) {
					return err
				}
			}
		}},
		{what: "stays with what it was", caught: "a Watch finds out by itself that its link is cut, and what was missed comes", watch: func() func(context.Context, source, func(instances.Change) error) error {
			var first *instances.Change
			return func(ctx context.Context, s source, emit func(instances.Change) error) error {
				return s.watch(ctx, func(c instances.Change) error {
					if c.Full && first == nil {
						first = &c
					}
					if c.Full {
						c = *first
					}
					return emit(c)
				})
			}
		}()},
		{what: "sleeps after its context", caught: "the end of its context ends Watch at once, and nothing is left behind", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			defer time.Sleep(time.Second)
			return s.watch(ctx, emit)
		}},
		{what: "leaves a goroutine", caught: "the end of its context ends Watch at once, and nothing is left behind", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			go time.Sleep(time.Minute)
			return s.watch(ctx, emit)
		}},
		{what: "goes on after an error of emit", caught: "an error of emit ends Watch, which returns it", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			return s.watch(ctx, func(c instances.Change) error { _ = emit(c); return nil })
		}},
		{what: "is an error of its own when emit fails", caught: "an error of emit ends Watch, which returns it", watch: func(ctx context.Context, s source, emit func(instances.Change) error) error {
			if err := s.watch(ctx, emit); errors.Is(err, errEnough) {
				return errAway
			}
			return ctx.Err()
		}},
		{what: "shows nobody anything", caught: "wrong credentials are an error that says so, and never an empty set", denied: func(_ context.Context, _ source, emit func(instances.Change) error) error {
			return errors.Join(emit(instances.Change{Full: true}), fmt.Errorf("at %s: %w", address, configstore.ErrDenied))
		}},
		{what: "does not say that it is denied", caught: "wrong credentials are an error that says so, and never an empty set", denied: func(context.Context, source, func(instances.Change) error) error { return errAway }},
		{what: "leaves out half of a huge set", caught: "a huge set comes whole, and changes of it come all the same", watch: saying(func(c instances.Change) instances.Change {
			if len(c.Put) > 100 {
				c.Put = c.Put[:100]
			}
			return c
		})},
		{what: "keeps the app of an address", caught: "an address that is given to another app goes with it", watch: saying(only(func(c *instances.Change) {
			c.Put = slices.DeleteFunc(c.Put, func(i catalog.Instance) bool { return strings.HasPrefix(i.App.ID, "billing") })
		}))},
	}
}

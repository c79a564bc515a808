package consul

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

const (
	readers = 8  // services that are read at once
	batch   = 64 // services that are read before what they brought is said
	rests   = 4  // how many times as long as something took to read whole it is not read again
)

// watch is how far one Watch has come. It is for one goroutine.
type watch struct {
	source  *Source
	emit    func(instances.Change) error
	asking  *sync.WaitGroup
	answers chan answer
	results chan result

	begun    chan struct{} // closed when the full set is in
	synced   bool
	names    map[string]bool
	services map[string]service
	failing  map[string]map[checkKey]*api.HealthCheck // by status

	urgent  map[string]bool // services to be read at once
	others  map[string]bool // and in their turn, of the round that has begun
	again   bool            // another round is to follow
	reading []string        // those that are being read; nil for none
	spent   time.Duration   // on others, since the last rest
	resting <-chan time.Time

	survey    bool // all checks are to be looked through
	surveyed  map[checkKey]surveyedCheck
	surveying <-chan time.Time // a rest from that
}

// result is some services as they are now.
type result struct {
	services map[string]service
	checks   api.HealthChecks // of a survey; then there are no services
	took     time.Duration
	turn     bool // they were read in their turn
	err      error
}

// follow begins and ends what a Watch consists of.
func (s *Source) follow(ctx context.Context, emit func(instances.Change) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	w := &watch{
		source: s, emit: emit, asking: &asking, answers: make(chan answer), results: make(chan result),
		begun:    make(chan struct{}),
		services: map[string]service{}, failing: map[string]map[checkKey]*api.HealthCheck{},
		urgent: map[string]bool{}, others: map[string]bool{},
	}
	if err := s.visible(ctx); err != nil {
		return err
	}
	w.askServices(ctx)
	w.askChecks(ctx, api.HealthCritical)
	if !s.config.WarningIsReady {
		w.askChecks(ctx, api.HealthWarning)
	}
	return w.run(ctx)
}

func (w *watch) run(ctx context.Context) error {
	for {
		w.readOn(ctx)
		var err error
		select {
		case a := <-w.answers:
			err = w.heard(ctx, a)
		case r := <-w.results:
			w.reading = nil
			err = w.take(r)
		case <-w.resting:
			w.resting = nil
		case <-w.surveying:
			w.surveying = nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// heard notes what is to be read because of an answer.
func (w *watch) heard(ctx context.Context, a answer) error {
	switch {
	case a.err != nil:
		return a.err
	case a.names == nil:
		w.checked(a)
		return nil
	}
	if len(a.names) == 0 {
		if err := w.source.visible(ctx); err != nil {
			return err
		}
	}
	was := w.names
	w.names, w.survey, w.again = a.names, true, w.again || was != nil
	for name := range a.names {
		if !was[name] {
			w.urgent[name] = true
		}
	}
	for name := range was {
		if !a.names[name] {
			delete(w.urgent, name)
			delete(w.others, name)
		}
	}
	return w.say(w.forget())
}

// readOn begins to read what is to be read, unless that is being done.
func (w *watch) readOn(ctx context.Context) {
	if w.reading != nil || w.names == nil {
		return
	}
	if len(w.urgent) == 0 && w.survey && w.surveying == nil {
		w.survey, w.reading = false, []string{}
		w.begin(ctx, w.source.survey)
		return
	}
	some, turn := w.next()
	if len(some) == 0 {
		return
	}
	known := make([]*service, len(some))
	for i, name := range some {
		if was, ok := w.services[name]; ok {
			known[i] = &was
		}
	}
	w.reading = some
	w.begin(ctx, func(ctx context.Context) result {
		r := w.source.readSome(ctx, some, known)
		r.turn = turn
		return r
	})
}

// next is what is to be read next, and whether that is in its turn. A round of all that
// has begun goes on to its end, whatever is registered meanwhile: another one follows, after
// a rest, so there are rests however restless the catalog is.
func (w *watch) next() (some []string, turn bool) {
	from := w.urgent
	if len(from) == 0 && w.resting == nil {
		if len(w.others) == 0 && w.again {
			w.again, w.others = false, maps.Clone(w.names)
		}
		from, turn = w.others, true
	}
	for name := range from {
		if some = append(some, name); len(some) == batch {
			break
		}
	}
	for _, name := range some {
		delete(w.urgent, name)
		delete(w.others, name)
	}
	return some, turn
}

// begin begins to read.
func (w *watch) begin(ctx context.Context, read func(context.Context) result) {
	w.asking.Go(func() {
		began := time.Now()
		r := read(ctx)
		r.took = time.Since(began)
		select {
		case w.results <- r:
		case <-ctx.Done():
		}
	})
}

// readSome reads services of which so much is known.
func (s *Source) readSome(ctx context.Context, names []string, known []*service) (r result) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	all := make([]service, len(names))
	for i, name := range names {
		group.Go(func() (err error) {
			all[i], err = s.read(ctx, name, known[i])
			return err
		})
	}
	if r.err = group.Wait(); r.err != nil {
		return r
	}
	r.services = make(map[string]service, len(names))
	for i, name := range names {
		r.services[name] = all[i]
	}
	return r
}

// take takes in what was read, and says what is different.
func (w *watch) take(r result) error {
	if r.err != nil {
		return r.err
	}
	if r.services == nil {
		w.surveying = time.After(rests * r.took)
		w.compare(r.checks)
		return nil
	}
	var c instances.Change
	news := false
	for name, now := range r.services {
		if w.names[name] {
			news = w.learn(name, now, &c) || news
		}
	}
	if r.turn {
		w.spent += r.took
	}
	if len(w.others) == 0 && w.spent > 0 {
		w.resting = time.After(rests * w.spent)
		w.spent = 0
	}
	return w.say(c, news)
}

// learn notes what a service is like, and adds to a change what is different.
func (w *watch) learn(name string, now service, c *instances.Change) (news bool) {
	was := w.services[name]
	for key, i := range now.instances {
		if before, stood := was.instances[key]; !stood || before != i {
			c.Put = append(c.Put, i)
		}
	}
	for key := range was.instances {
		if _, stands := now.instances[key]; !stands {
			c.Delete = append(c.Delete, key)
		}
	}
	w.services[name] = now
	return len(c.Put)+len(c.Delete) > 0 || !slices.EqualFunc(was.refused, now.refused, func(a, b instances.Refusal) bool {
		return a.Where == b.Where && a.Err.Error() == b.Err.Error()
	})
}

// forget takes away the services that are none any more.
func (w *watch) forget() (c instances.Change, news bool) {
	for name, s := range w.services {
		if !w.names[name] {
			delete(w.services, name)
			news = true
			c.Delete = slices.AppendSeq(c.Delete, maps.Keys(s.instances))
		}
	}
	return c, news
}

// say says a change, and the full set first, once every service has been read.
func (w *watch) say(c instances.Change, news bool) error {
	if !w.synced {
		if len(w.services) < len(w.names) {
			return nil
		}
		w.synced = true
		close(w.begun)
		c, news = instances.Change{Full: true, Put: w.everything()}, true
	}
	if !news {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		c.Refused = append(c.Refused, w.services[name].refused...)
	}
	return w.emit(c)
}

func (w *watch) everything() (all []catalog.Instance) {
	for _, s := range w.services {
		all = slices.AppendSeq(all, maps.Values(s.instances))
	}
	return all
}

// Package static is the source of the instances that AppInstance objects name, and
// checks whether they are ready. It asks by TCP, HTTP or gRPC's health protocol, each as
// often as its object says.
package static

import (
	"context"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Name is that of the source.
const Name = "static"

// Source is an [instances.Source]. An instance without a health check is ready; one with a check is
// once the check has succeeded as often as its object asks. Another one is draining and, once it
// has been asked, among the refusals with the reason.
type Source struct {
	objects *live.Value[[]*catalog.AppInstance]
	prober  *probe.Prober
	prepare func(*catalog.AppInstance) asker

	// watching guards targets: what was found out stands from one Watch to the next.
	watching sync.Mutex
	targets  map[catalog.Key]*target
}

// New makes a source that follows objects, and whose checks a prober holds to its rules. It
// starts nothing.
func New(objects *live.Value[[]*catalog.AppInstance], prober *probe.Prober) *Source {
	return &Source{objects: objects, prober: prober, prepare: prepare, targets: map[catalog.Key]*target{}}
}

// Name is that of the source.
func (s *Source) Name() string { return Name }

// Rank is that of instances.Source: somebody wrote the objects down.
func (s *Source) Rank() topology.Rank { return topology.Written }

// Watch is that of [instances.Source]. The first set waits until each instance has been
// asked once, for at most two seconds; while the objects are not known, it waits for them.
// Instances are checked as long as it runs. It ends with ctx, or with an error of emit.
func (s *Source) Watch(ctx context.Context, emit func(instances.Change) error) error {
	s.watching.Lock()
	defer s.watching.Unlock()
	if _, err := s.objects.Wait(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	inside, cancel := context.WithCancel(ctx)
	r := newRound(inside, s, emit)
	defer r.wait()
	defer cancel()
	return r.run()
}

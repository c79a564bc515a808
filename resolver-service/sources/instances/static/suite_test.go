package static

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place has AppInstance objects, and says which of the instances are well: theirs are
// addresses that nobody here has.
type place struct {
	mu      sync.Mutex
	objects map[catalog.Key]*catalog.AppInstance
	ill     map[catalog.Key]bool
	value   live.Value[[]*catalog.AppInstance]
}

func newPlace() *place {
	p := &place{objects: map[catalog.Key]*catalog.AppInstance{}, ill: map[catalog.Key]bool{}}
	p.value.Store(nil)
	return p
}

func (p *place) put(t testing.TB, all ...catalog.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range all {
		o := object(i)
		delete(p.ill, o.Key())
		p.objects[o.Key()] = o
	}
	p.publish()
}

func object(i catalog.Instance) *catalog.AppInstance {
	return &catalog.AppInstance{
		Namespace: i.App.Namespace, Name: i.ID, App: i.App.ID, Address: i.Address,
		Check: &catalog.HealthCheck{Interval: 100 * time.Millisecond, Timeout: 100 * time.Millisecond, HealthyAfter: 1, UnhealthyAfter: 10},
	}
}

func (p *place) publish() {
	var all []*catalog.AppInstance
	for _, o := range p.objects {
		all = append(all, o)
	}
	p.value.Store(all)
}

func (p *place) remove(t testing.TB, all ...catalog.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range all {
		delete(p.objects, object(i).Key())
	}
	p.publish()
}

func (p *place) drain(t testing.TB, i catalog.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ill[object(i).Key()] = true
}

func (p *place) open(testing.TB) instances.Source {
	s := New(&p.value, local())
	s.prepare = func(o *catalog.AppInstance) asker {
		return func(context.Context) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.ill[o.Key()] {
				return errors.New("it is ill")
			}
			return nil
		}
	}
	return s
}

func TestSource(t *testing.T) {
	instancestest.Run(t, func(*testing.T) instancestest.Backend {
		p := newPlace()
		return instancestest.Backend{Open: p.open, Put: p.put, Drain: p.drain, Delete: p.remove}
	})
}

package consulapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const (
	// saveAgain is how often what could not be saved is tried once more.
	saveAgain = 10 * time.Second
	// mostTold is how many troubles a status names.
	mostTold = 100
)

// unsaved are the services that are not kept over a restart, and why. It has a lock of its
// own: who asks for the status does not wait for a disk that hangs.
type unsaved struct {
	mu  sync.Mutex
	why map[topology.InstanceKey]error
}

// note has it that a service is saved, or why not, and tells whether it was not before.
func (u *unsaved) note(key topology.InstanceKey, err error) (before bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, before = u.why[key]; err == nil {
		delete(u.why, key)
	} else {
		u.why[key] = err
	}
	return before
}

func (u *unsaved) forget(key topology.InstanceKey) { u.note(key, nil) }

// all is a copy.
func (u *unsaved) all() map[topology.InstanceKey]error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.why)
}

// save keeps a service over a restart. One that can't be saved stands all the same; it is
// remembered, told in the status, and saved once that is possible. It is called with mu held.
func (r *registry) save(o *owned, s *service) (saved bool) {
	key := topology.InstanceKey{App: o.app, ID: s.def.ID}
	err := r.store.save(o.app, s)
	if err != nil {
		err = fmt.Errorf("it can't be saved, so a restart would lose it, or bring back what it was: %w; make room in %s, or let this user write there; it is tried again every %s", err, r.store.dir, saveAgain)
	}
	switch before := r.unsaved.note(key, err); {
	case err != nil && !before:
		r.often.Error("unsaved "+o.app.String(), "a registered service is not kept over a restart", "app", o.app.String(), "service", s.def.ID, "err", err)
	case err == nil && before:
		r.often.Info("saved "+o.app.String(), "a registered service is kept over a restart again", "app", o.app.String(), "service", s.def.ID)
	}
	return err == nil
}

// saveRest saves what could not be saved before, until something can't. Others have their
// turn between two files.
func (r *registry) saveRest() {
	for key := range r.unsaved.all() {
		if !r.saveOne(key) {
			return
		}
	}
}

func (r *registry) saveOne(key topology.InstanceKey) (saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.own(key.App).services[key.ID]
	return s == nil || r.save(r.own(key.App), s)
}

// Status is how the API is as a source of instances, with what is wrong.
func (s *Server) Status() *v1alpha1.SourceStatus {
	answer := &v1alpha1.SourceStatus{Name: Source, Ready: true, Instances: uint32(s.Instances())}
	if err := s.unread.Load(); err != nil {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{Source: "tokens", Error: "they can't be read again; those of before hold: " + (*err).Error()})
	}
	all := s.registry.unsaved.all()
	keys := slices.SortedFunc(maps.Keys(all), func(a, b topology.InstanceKey) int {
		return cmp.Or(a.App.Compare(b.App), strings.Compare(a.ID, b.ID))
	})
	for _, key := range keys[:min(len(keys), mostTold)] {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{
			Source: fmt.Sprintf("service %s of %s", quoted(key.ID), key.App), Error: all[key].Error(),
		})
	}
	return answer
}

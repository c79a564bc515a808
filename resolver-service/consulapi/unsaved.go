package consulapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// save keeps a service over a restart. One that can't be saved stands all the same; it is
// remembered, told in the status, and saved once that is possible. It is called with mu held.
func (r *registry) save(o *owned, s *service) (saved bool) {
	key := topology.InstanceKey{App: o.app, ID: s.def.ID}
	err := r.store.save(o.app, s)
	_, before := r.unsaved[key]
	switch {
	case err != nil:
		r.unsaved[key] = fmt.Errorf("it can't be saved, so a restart would lose it, or bring back what it was: %w; make room in %s, or let this user write there; it is tried again every %s", err, r.store.dir, saveAgain)
		if !before {
			r.log.Error("a registered service is not kept over a restart", "app", o.app.String(), "service", s.def.ID, "err", r.unsaved[key])
		}
	case before:
		delete(r.unsaved, key)
		r.log.Info("a registered service is kept over a restart again", "app", o.app.String(), "service", s.def.ID)
	}
	return err == nil
}

// saveRest saves what could not be saved before, until something can't.
func (r *registry) saveRest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.unsaved {
		o := r.known(key.App)
		if s := o.services[key.ID]; s == nil {
			delete(r.unsaved, key)
		} else if !r.save(o, s) {
			return
		}
	}
}

// Status is how the API is as a source of instances, with what is wrong.
func (s *Server) Status() *v1alpha1.SourceStatus {
	answer := &v1alpha1.SourceStatus{Name: Source, Ready: true, Instances: uint32(s.Instances())}
	if err := s.unread.Load(); err != nil {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{Source: "tokens", Error: "they can't be read again; those of before hold: " + (*err).Error()})
	}
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(s.registry.unsaved), func(a, b topology.InstanceKey) int {
		return cmp.Or(a.App.Compare(b.App), strings.Compare(a.ID, b.ID))
	})
	for _, key := range keys[:min(len(keys), mostTold)] {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{
			Source: fmt.Sprintf("service %s of %s", quoted(key.ID), key.App), Error: s.registry.unsaved[key].Error(),
		})
	}
	return answer
}

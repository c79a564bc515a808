package configstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// ClusterIdentity is what tells this cluster from another of its name: the identity of its config
// store, once that is known. It stays until the service ends, since peers refuse another one beside
// it.
type ClusterIdentity struct {
	id    live.Value[string]
	wrong live.Value[string]
	Every time.Duration // how often the store is asked; 0: identityEvery
}

// Get returns it, empty while it is not known. It may be called concurrently.
func (s *ClusterIdentity) Get() string {
	id, _ := s.id.Load()
	return id
}

// Problem describes the fault of the identity that the store has; empty for nothing.
func (s *ClusterIdentity) Problem() string {
	wrong, _ := s.wrong.Load()
	return wrong
}

// Pauses between two questions, and after a store did not answer.
const (
	identityEvery        = 30 * time.Second
	identityPause        = time.Second
	longestIdentityPause = time.Minute
)

// Follow asks the store once it has been read, again whenever it is back from an outage, and now
// and then. If an identity has been lost, the store gets the former one. It asks no empty store:
// that may be one that has lost its data.
func (s *ClusterIdentity) Follow(ctx context.Context, store Store, status *live.Value[Status]) error {
	from, ok := store.(Identifier)
	if !ok {
		<-ctx.Done()
		return nil
	}
	var due <-chan time.Time // nil: the store was not readable
	for failures := 0; ; {
		now, _, changed := status.Follow()
		switch readable := now.Synced && now.Err == nil && now.Objects > 0; {
		case !readable:
			due = nil
		case due == nil:
			pause := cmp.Or(s.Every, identityEvery)
			if s.ask(ctx, from) {
				failures = 0
			} else {
				pause = live.Backoff(identityPause, longestIdentityPause, failures)
				failures++
			}
			due = time.After(live.Jitter(pause))
		}
		select {
		case <-changed:
		case <-due:
			due = nil
		case <-ctx.Done():
			return nil
		}
	}
}

// ask asks the store once, and tells whether it has answered.
func (s *ClusterIdentity) ask(ctx context.Context, from Identifier) bool {
	own, wrong := s.Get(), ""
	id, err := Identity(ctx, from, cmp.Or(own, rand.Text()))
	switch {
	case errors.Is(err, ErrIdentity):
		wrong = err.Error()
	case err != nil:
		return false
	case own == "" && id != "":
		s.id.Store(id)
	case own != id && id != "":
		wrong = fmt.Sprintf("the store says that this cluster is %s, and this replica goes by %s until it ends; "+
			"if the other replicas go by that one too, %s; otherwise restart those that do not go by the store's", id, own, DeleteIdentity)
	}
	if wrong != s.Problem() {
		s.wrong.Store(wrong)
	}
	return true
}

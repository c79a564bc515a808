package resolverservice

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/live"
)

// storeIdentity is what tells this cluster from another of its name: the identity of its config store,
// once that is known.
type storeIdentity struct{ id live.Value[string] }

// get returns it, empty while it is not known. It may be called concurrently.
func (s *storeIdentity) get() string {
	id, _ := s.id.Load()
	return id
}

// Pauses after a store did not answer.
const (
	identityPause        = time.Second
	longestIdentityPause = time.Minute
)

// follow asks the store once it has been read and again whenever it is back from an outage, since it
// may be a restored one then. It asks no empty store: that may be one that has lost its data. If an
// identity has been lost with the data, the store gets the former one.
func (s *storeIdentity) follow(ctx context.Context, store configstore.Store, status *live.Value[configstore.Status]) error {
	from, ok := store.(configstore.Identifier)
	if !ok {
		<-ctx.Done()
		return nil
	}
	for asked, failures := false, 0; ; {
		now, _, changed := status.Follow()
		readable := now.Synced && now.Err == nil && now.Objects > 0
		asked = asked && readable
		if readable && !asked {
			id, err := from.Identity(ctx, cmp.Or(s.get(), rand.Text()))
			if err == nil {
				s.id.Store(id)
				asked, failures = true, 0
			} else if live.Sleep(ctx, live.Jitter(live.Backoff(identityPause, longestIdentityPause, failures))) {
				failures++
				continue
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

package simulation

import (
	"context"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// sidecar follows an app's view from a replica of its cluster, like a real sidecar: it reports
// the revision that it holds, and keeps its view while the service is away.
type sidecar struct {
	app    catalog.App
	at     *replica
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	view *catalog.View // that it holds; nil before the first
}

// attach follows the replica's service, which runs.
func (d *sidecar) attach() {
	s := d.at.service
	ctx, cancel := context.WithCancel(s.ctx)
	d.cancel = cancel
	d.done.Go(func() { d.follow(ctx, s) })
}

func (d *sidecar) detach() {
	if d.cancel != nil {
		d.cancel()
		d.done.Wait()
		d.cancel = nil
	}
}

// move goes to another replica.
func (d *sidecar) move(to *replica) {
	d.detach()
	d.at = to
	if to.service != nil {
		d.attach()
	}
}

func (d *sidecar) held() (view *catalog.View, revision uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view != nil {
		revision = d.view.Revision
	}
	return d.view, revision
}

func (d *sidecar) follow(ctx context.Context, s *service) {
	w := s.replica.cluster.world
	if _, held := d.held(); held > 0 {
		select {
		case <-s.settled:
		case <-ctx.Done():
			return
		}
		if !w.mutation.forgetsRevisions && s.topology.AtLeast(ctx, d.app, held) != nil {
			return
		}
	}
	sub := s.topology.Subscribe(d.app)
	defer sub.Close()
	var seen *catalog.View
	for {
		next, err := sub.Next(ctx, seen)
		if err != nil {
			return
		}
		seen = next
		if _, held := d.held(); next.Revision < held && !w.mutation.forgetsRevisions {
			// The app follows another view than before.
			if s.topology.AtLeast(ctx, d.app, held) != nil {
				return
			}
			next, _ = sub.View()
		}
		d.take(w, next)
	}
}

// take holds a view from now on.
func (d *sidecar) take(w *world, view *catalog.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view != nil && view.Revision < d.view.Revision {
		w.fail("revision: %s in %s is given revision %d of its view after %d", d.app, d.at.host, view.Revision, d.view.Revision)
	}
	d.view = view
}

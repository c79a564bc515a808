package nameresolution

import (
	"errors"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxRefused bounds the apps that refused lookups are counted for each by itself until they are
// reported. Further ones count as one without a name: callers may ask for any name.
const maxRefused = 64

// refusals counts the lookups that were refused, for reports to the service. Lookups that succeed
// don't touch it.
type refusals struct {
	mu     sync.Mutex
	counts map[refusedLookup]uint64
}

type refusedLookup struct {
	app     catalog.App
	outcome catalog.Outcome
}

func (r *refusals) add(app catalog.App, err error) {
	var refusal *catalog.Refusal
	if errors.As(err, &refusal) {
		r.count(refusedLookup{app, refusal.Outcome}, 1)
	}
}

func (r *refusals) count(what refusedLookup, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, named := r.counts[what]; !named && len(r.counts) >= maxRefused {
		what.app = catalog.App{}
	}
	if r.counts == nil {
		r.counts = map[refusedLookup]uint64{}
	}
	r.counts[what] += n
}

// take returns what was counted since the last take.
func (r *refusals) take() map[refusedLookup]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.counts
	r.counts = nil
	return all
}

// giveBack counts again what was taken and not reported.
func (r *refusals) giveBack(all map[refusedLookup]uint64) {
	for what, n := range all {
		r.count(what, n)
	}
}

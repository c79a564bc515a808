package nameresolution

import (
	"errors"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// refusals counts the lookups that were refused, by outcome, for reports to the service. Lookups
// that succeed don't touch it.
type refusals struct {
	counts [catalog.NotReady + 1]atomic.Uint64
}

// refusalCounts are the counts of one moment, by outcome.
type refusalCounts [catalog.NotReady + 1]uint64

func (r *refusals) add(err error) {
	var refusal *catalog.Refusal
	if errors.As(err, &refusal) && int(refusal.Outcome) < len(r.counts) {
		r.counts[refusal.Outcome].Add(1)
	}
}

func (r *refusals) read() (now refusalCounts) {
	for i := range r.counts {
		now[i] = r.counts[i].Load()
	}
	return now
}

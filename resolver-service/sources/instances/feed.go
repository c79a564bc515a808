package instances

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Bounds where a FeedConfig has none.
const (
	DefaultMaxInstances = 200_000
	DefaultSettleWithin = 10 * time.Second
)

const (
	// rest is from one change of the topology to the next: what sources say meanwhile
	// becomes one change. What comes after a silence waits for nothing.
	rest = 5 * time.Millisecond
	// portion is how many instances one change of the topology puts or deletes at most,
	// so that others who wait for it have their turn.
	portion = 8192
)

// FeedConfig says what a Feed follows.
type FeedConfig struct {
	Sources      []Source
	MaxInstances int                // of each source; what is beyond is refused. 0: DefaultMaxInstances
	Destinations *destination.Rules // for the addresses of instances
	SettleWithin time.Duration      // how long Settled waits for full sets; 0: DefaultSettleWithin
}

// Applier takes changes in: it is the topology.
type Applier interface {
	Apply(ctx context.Context, c topology.Change) (revision uint64, err error)
}

// Feed follows sources at once and hands changes to the topology. It asks a failed source again,
// with pauses. The last state of that source stands meanwhile. When it is read anew, only
// differences go on.
type Feed struct {
	to       Applier
	log      *slog.Logger
	max      int
	within   time.Duration
	followed []*followed
	wake     chan struct{} // has something in it when a source has news
	settled  chan struct{}

	publishing sync.Mutex // one Store at a time
	status     live.Value[[]Status]
}

// NewFeed makes a Feed, which Run makes work. It refuses two sources of one name.
func NewFeed(c FeedConfig, to Applier, log *slog.Logger) (*Feed, error) {
	f := &Feed{
		to: to, log: log, max: c.MaxInstances, within: c.SettleWithin,
		wake: make(chan struct{}, 1), settled: make(chan struct{}),
	}
	if f.max == 0 {
		f.max = DefaultMaxInstances
	}
	if f.within == 0 {
		f.within = DefaultSettleWithin
	}
	for _, s := range c.Sources {
		if slices.ContainsFunc(f.followed, func(other *followed) bool { return other.source.Name() == s.Name() }) {
			return nil, fmt.Errorf("two sources of instances are called %q; what one says would take away what the other does", s.Name())
		}
		f.followed = append(f.followed, newFollowed(s, f.max, c.Destinations, log.With("source", s.Name())))
	}
	f.publish()
	return f, nil
}

// Status is how each source is, in the order of the config: to be read and followed. Who
// reads it after a change finds that change in the topology.
func (f *Feed) Status() *live.Value[[]Status] { return &f.status }

// Settled is closed once every source has had its full set in, and the topology has it;
// or SettleWithin after Run began, for those that can't be read.
func (f *Feed) Settled() <-chan struct{} { return f.settled }

// Run follows the sources until ctx ends or the topology does, and returns why.
func (f *Feed) Run(ctx context.Context) error {
	group, inside := errgroup.WithContext(ctx)
	for _, s := range f.followed {
		group.Go(func() error { return s.run(inside, f.noticed, f.publish) })
	}
	group.Go(func() error { return f.tell(inside) })
	err := group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// noticed lets tell look for news.
func (f *Feed) noticed() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// tell hands on what the sources say.
func (f *Feed) tell(ctx context.Context) error {
	late := time.NewTimer(f.within)
	defer late.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for settled := false; ; {
		if !settled && f.ready() {
			settled = true
			close(f.settled)
		}
		select {
		case <-f.wake:
		case <-late.C:
			if !settled {
				settled = true
				f.log.Warn("not every source of instances has been read; going on without", "sources", f.missing(), "waited", f.within)
				close(f.settled)
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
		pause.Reset(rest)
	}
}

// flush hands on what each source has said by now, and then says so.
func (f *Feed) flush(ctx context.Context) error {
	var news []*snapshot
	var changes []topology.InstanceChange
	for _, s := range f.followed {
		if n := s.take(); n != nil {
			news = append(news, n)
			changes = append(changes, n.changes...)
		}
	}
	for len(changes) > 0 {
		n := together(changes)
		if _, err := f.to.Apply(ctx, topology.Change{Instances: changes[:n]}); err != nil {
			return fmt.Errorf("hand instances to the topology: %w", err)
		}
		changes = changes[n:]
	}
	for _, n := range news {
		n.applied()
	}
	if len(news) > 0 {
		f.publish()
	}
	return nil
}

// together is how many of the first changes make one portion: one at least.
func together(changes []topology.InstanceChange) int {
	size := 0
	for n, c := range changes {
		size += len(c.Put) + len(c.Delete)
		if n > 0 && size > portion {
			return n
		}
	}
	return len(changes)
}

func (f *Feed) ready() bool { return len(f.missing()) == 0 }

// missing are the names of the sources whose full set is not in.
func (f *Feed) missing() (names []string) {
	for _, s := range f.followed {
		if !s.current().Ready {
			names = append(names, s.source.Name())
		}
	}
	return names
}

// publish says how the sources are.
func (f *Feed) publish() {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	all := make([]Status, len(f.followed))
	for i, s := range f.followed {
		all[i] = s.current()
	}
	f.status.Store(all)
}

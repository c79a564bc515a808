package stream

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Source is the name of this source of instances in the topology.
const Source = "stream"

// applier applies changes of instances. Apply returns once they are published.
type applier interface {
	Apply(ctx context.Context, c topology.Change) (revision uint64, err error)
}

// Sharer tells other replicas of the service which instances are registered with this one. One
// goroutine calls its methods, which must not block.
type Sharer interface {
	// Register announces an instance that has registered here, later than anywhere else. taken is
	// called, at most once, when the instance registers with another replica.
	Register(i catalog.Instance, taken func())
	// Drain announces that an instance which is registered here takes no new calls.
	Drain(key topology.InstanceKey)
	// Withdraw announces that an instance is no longer registered here.
	Withdraw(key topology.InstanceKey)
}

// registry owns the instances that streams register, in the goroutine of run. Concurrent requests
// become one change of the topology.
type registry struct {
	to        applier
	share     Sharer // nil: there are no other replicas, or they need not be told
	clock     *topology.Clock
	settle    time.Duration
	log       *slog.Logger
	throttled *throttle.Log // for lines that sidecars cause
	requests  chan *request
	stopped   chan struct{} // closed when run has ended

	published live.Value[instanceTable] // what the topology was told, for the snapshot
	count     atomic.Int64

	ledger *ledger // owned by run's goroutine
}

// registration is a stream's hold on an instance. A later registration of the same instance takes
// it over.
type registration struct {
	instance   catalog.Instance
	superseded func() // called after a later registration; must not block
}

func (r *registration) key() topology.InstanceKey {
	return topology.KeyOf(&r.instance)
}

// request asks run to register, drain or withdraw an instance.
type request struct {
	verb   verb
	held   *registration
	answer chan answer // buffered, one answer
}

type verb uint8

const (
	register verb = iota
	drain
	withdraw
)

type answer struct {
	revision uint64
	err      error
}

// errStopped is the answer of a registry that no longer runs.
var errStopped = errors.New("the registry of instances has stopped")

func newRegistry(to applier, share Sharer, clock *topology.Clock, settle time.Duration, log *slog.Logger) *registry {
	return &registry{
		to: to, share: share, clock: clock, settle: settle, log: log, throttled: throttle.New(log, throttle.Interval),
		requests: make(chan *request), stopped: make(chan struct{}), ledger: newLedger(),
	}
}

// request has run process a registration, and returns once the result is published, with the
// first revision that has it. A withdrawal is processed even if ctx has ended.
func (r *registry) request(ctx context.Context, v verb, held *registration) (uint64, error) {
	req := &request{verb: v, held: held, answer: make(chan answer, 1)}
	select {
	case r.requests <- req:
	case <-r.stopped:
		return 0, errStopped
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	a := <-req.answer
	return a.revision, a.err
}

// restore publishes the instances of the snapshot. Call it before run.
func (r *registry) restore(ctx context.Context, former []catalog.Instance) error {
	for _, i := range former {
		r.clock.Heard(i.Since)
		r.ledger.restore(i)
	}
	_, err := r.publish(ctx)
	return err
}

// noRejoinFactor extends the rejoin timeout while no sidecar at all reconnects. Then it is likely
// that none can, for example because the service has no certificate yet, and not that all are
// gone.
const noRejoinFactor = 10

// run owns the ledger until ctx ends. It withdraws restored instances whose sidecars do not
// reconnect in time after the first one that does.
func (r *registry) run(ctx context.Context) error {
	defer close(r.stopped)
	settled := time.NewTimer(noRejoinFactor * r.settle) // by the monotonic clock
	defer settled.Stop()
	for first := true; ; {
		var batch []*request
		select {
		case req := <-r.requests:
			batch = r.collect(req)
			r.take(batch)
			if first {
				settled.Reset(r.settle)
				first = false
			}
		case <-settled.C:
			r.expire()
		case <-ctx.Done():
			return ctx.Err()
		}
		revision, err := r.publish(ctx)
		if err == nil {
			r.shareChanges(batch)
		}
		for _, req := range batch {
			req.answer <- answer{revision, err}
		}
		if err != nil {
			return err
		}
	}
}

// maxBatch bounds the requests in one change, so that the first does not wait for the last.
const maxBatch = 1024

// collect takes the requests that are waiting already.
func (r *registry) collect(first *request) []*request {
	batch := []*request{first}
	for len(batch) < maxBatch {
		select {
		case req := <-r.requests:
			batch = append(batch, req)
		default:
			return batch
		}
	}
	return batch
}

func (r *registry) take(batch []*request) {
	for _, req := range batch {
		switch req.verb {
		case register:
			r.register(req.held)
		case drain:
			r.ledger.drain(req.held)
		case withdraw:
			r.ledger.withdraw(req.held)
		}
	}
}

func (r *registry) register(held *registration) {
	held.instance.Since = r.clock.Next()
	for _, old := range r.ledger.register(held) {
		i := old.instance
		if i.App != held.instance.App {
			r.throttled.Warn("address "+held.instance.App.String(), "address reassigned to the app that registered it last",
				"app", held.instance.App.String(), "instance", held.instance.ID, "address", i.Address.String(),
				"formerApp", i.App.String(), "formerInstance", i.ID)
		}
		if old.held != nil && old.held.superseded != nil {
			old.held.superseded()
		}
	}
}

func (r *registry) expire() {
	for _, i := range r.ledger.expire() {
		r.throttled.Info("expired "+i.App.String(), "sidecar did not reconnect after the restart; its instance is withdrawn",
			"app", i.App.String(), "instance", i.ID, "address", i.Address.String())
	}
}

// publish tells the topology what has changed.
func (r *registry) publish(ctx context.Context) (revision uint64, err error) {
	changed := r.ledger.flush()
	var news topology.Change // without any, the caller wants a revision that has all of it all the same
	if len(changed.Put)+len(changed.Delete) > 0 {
		news.Instances = []topology.InstanceChange{changed}
	}
	revision, err = r.to.Apply(ctx, news)
	if err != nil {
		return 0, err
	}
	if len(news.Instances) > 0 {
		before, _ := r.published.Load()
		r.published.Store(r.ledger.table(before, &changed))
	}
	r.count.Store(int64(r.ledger.count))
	return revision, nil
}

// shareChanges tells other replicas about the requests after views here have them. So an instance
// is never missing both there and here.
func (r *registry) shareChanges(batch []*request) {
	if r.share == nil {
		return
	}
	for _, req := range batch {
		key := req.held.key()
		now := r.ledger.get(key)
		switch {
		case now == nil:
			r.share.Withdraw(key)
		case now.held != req.held: // superseded here
		case req.verb == register:
			r.share.Register(req.held.instance, req.held.superseded)
		case req.verb == drain:
			r.share.Drain(key)
		}
	}
}

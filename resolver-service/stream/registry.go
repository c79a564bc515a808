package stream

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// Source is the name of this source of instances in the topology.
const Source = "stream"

// applier takes changes of instances in. Apply returns once they are published.
type applier interface {
	Apply(ctx context.Context, c topology.Change) (revision uint64, err error)
}

// Sharer tells other replicas of the service which instances are registered with this one.
// Its methods are called by one goroutine, and must not block.
type Sharer interface {
	// Register says that an instance has registered here, later than anywhere else. taken
	// is called, at most once, when it has registered with another replica since.
	Register(i catalog.Instance, taken func())
	// Drain says that an instance which registered here takes no new calls.
	Drain(key topology.InstanceKey)
	// Withdraw says that an instance is not registered here any more.
	Withdraw(key topology.InstanceKey)
}

// registry owns the instances that streams register, in the goroutine of run. What
// many streams ask for at one time becomes one change of the topology.
type registry struct {
	to        applier
	share     Sharer // nil: there are no other replicas, or they need not be told
	settle    time.Duration
	log       *slog.Logger
	throttled *throttle.Log // for lines that sidecars cause
	requests  chan *request
	stopped   chan struct{} // closed when run has ended

	// standing is what the topology was told, by app, for the snapshot.
	published live.Value[instanceTable]
	count     atomic.Int64

	ledger *ledger // of run's goroutine
}

// registration is an instance's hold on its place: whoever registers the same
// instance later takes it over.
type registration struct {
	instance   catalog.Instance
	superseded func() // called once another took over; must not block
}

func (r *registration) key() topology.InstanceKey {
	return topology.KeyOf(&r.instance)
}

// request asks run to take a registration in, to mark it as draining, or to
// withdraw it.
type request struct {
	verb   verb
	held   *registration
	answer chan answer // has room for one
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

// errStopped is the answer of a registry that does not run any more.
var errStopped = errors.New("the registry of instances has stopped")

func newRegistry(to applier, share Sharer, settle time.Duration, log *slog.Logger) *registry {
	return &registry{
		to: to, share: share, settle: settle, log: log, throttled: throttle.New(log, logInterval),
		requests: make(chan *request), stopped: make(chan struct{}), ledger: newLedger(),
	}
}

// do has run do what verb says with a registration, and returns once it is published,
// with the revision from which on it is. A withdrawal passes even when ctx has ended.
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

// restore publishes the instances of a former life. It comes before run.
func (r *registry) restore(ctx context.Context, former []catalog.Instance) error {
	for _, i := range former {
		r.ledger.restore(i)
	}
	_, err := r.publish(ctx, true)
	return err
}

// blindly is how many times longer instances of a former life stand while no sidecar
// at all comes back: then it is more likely that none can, as when the service has no
// certificate yet, than that all are gone.
const noRejoinFactor = 10

// run owns the ledger until ctx ends. Instances of a former life are withdrawn unless
// they come back in time after the first that does.
func (r *registry) run(ctx context.Context) error {
	defer close(r.stopped)
	settled := time.NewTimer(noRejoinFactor * r.settle) // monotonic: a clock that jumps moves nothing
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
		revision, err := r.publish(ctx, false)
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

// maxBatch bounds what becomes one change, so that the first who asked does not wait
// for the last.
const maxBatch = 1024

// collect takes what others are waiting to ask as well.
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
	for _, old := range r.ledger.register(held) {
		i := old.instance
		if i.App != held.instance.App {
			r.throttled.Warn("address "+held.instance.App.String(), "an address was registered by another app; the newest holder has it",
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
		r.throttled.Info("expired "+i.App.String(), "an instance of before the restart has not come back; it is withdrawn",
			"app", i.App.String(), "instance", i.ID, "address", i.Address.String())
	}
}

// publish tells the topology what has changed, and which instances have registered.
func (r *registry) publish(ctx context.Context, restored bool) (revision uint64, err error) {
	n := r.ledger.flush()
	// With nothing to tell, whoever asked wants a revision that has it all the same.
	revision, err = r.to.Apply(ctx, topology.Change{Instances: n.changes(restored)})
	if err != nil {
		return 0, err
	}
	if len(n.changed.Put)+len(n.changed.Delete) > 0 {
		before, _ := r.published.Load()
		r.published.Store(withChange(before, &n.changed))
	}
	r.count.Store(int64(len(r.ledger.records)))
	return revision, nil
}

// tellOthers hands what was asked for to the other replicas, now that views here have it:
// so no instance is away between what they said of it and what stands here.
func (r *registry) shareChanges(batch []*request) {
	if r.share == nil {
		return
	}
	for _, req := range batch {
		key := req.held.key()
		now := r.ledger.records[key]
		switch {
		case now == nil:
			r.share.Withdraw(key)
		case now.held != req.held: // it was taken over here
		case req.verb == register:
			r.share.Register(req.held.instance, req.held.superseded)
		case req.verb == drain:
			r.share.Drain(key)
		}
	}
}

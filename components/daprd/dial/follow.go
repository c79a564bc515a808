package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
)

// follower keeps one gRPC connection told of its cluster's gateways. It is what
// gRPC calls a resolver; gRPC closes it, and Close waits for its goroutine.
type follower struct {
	names    *Names
	gateways *live.Value[*catalog.Gateways]
	name     string // "host:port", as dialled
	cluster  string
	cc       resolver.ClientConn
	retry    bool // calls that a lost gateway cut off
	fleet    *fleet
	leads    *leads
	way      way
	shard    int // catalog.NoShard in the name of an app

	again   chan struct{} // gRPC asks for a fresh lookup
	renewed chan struct{} // renew was called
	ctx     context.Context
	stop    context.CancelFunc
	mu      sync.Mutex // of what ctx ends and done counts
	done    sync.WaitGroup

	renewal
	latest   atomic.Pointer[watching] // the policy that is told
	dialled  atomic.Pointer[[]string] // as told
	until    atomic.Int64             // a connection is wanted, in nanoseconds since began
	reviving atomic.Bool

	// Owned by the goroutine in run.
	told  []string            // what gRPC was last told
	turns uint32              // the same, of renewals
	known map[string][]string // gateway "host:port" to "ip:port", as last looked up
}

func start(n *Names, to target, name string, cc resolver.ClientConn) *follower {
	f := &follower{
		names: n, gateways: to.gateways, name: name, cluster: to.cluster, cc: cc, retry: n.retry.Load(), fleet: n.fleet(to.cluster),
		leads: n.leads.Load(), way: way{to.app, to.cluster}, shard: to.shard,
		again: make(chan struct{}, 1), renewed: make(chan struct{}, 1), known: map[string][]string{},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.leads.join(f)
	f.done.Go(func() { f.run(f.ctx) })
	return f
}

// ResolveNow is gRPC's hint that a connection failed. It never blocks.
func (f *follower) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// Close ends the follower and returns when its goroutine has.
func (f *follower) Close() {
	f.leads.leave(f)
	f.mu.Lock()
	f.stop()
	f.mu.Unlock()
	f.done.Wait()
}

// run tells gRPC the addresses, then waits for what may change them: other
// gateways, or time for another lookup of those given by host name.
func (f *follower) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		now, _, changed := f.gateways.Follow()
		addresses := addressesOf(now, f.cluster)
		if len(addresses) == 0 {
			f.absent(ctx, changed)
			continue
		}
		began := time.Now()
		if err := f.tell(ctx, addresses, changed); err == nil {
			failures = 0
		} else if !superseded(ctx, changed) {
			f.complain(err, failures)
			failures++
		}
		if !slices.ContainsFunc(addresses, isHostName) {
			f.wait(ctx, changed, nil, nil)
			continue
		}
		if f.wait(ctx, changed, time.After(f.names.times.next(failures)), f.again) {
			f.wait(ctx, changed, time.After(f.names.times.Soonest-time.Since(began)), nil)
		}
	}
}

// next is when to look up again: sooner after a failure, later after each more.
func (t Times) next(failures int) time.Duration {
	if failures == 0 {
		return t.Every
	}
	return min(t.Soonest<<min(failures-1, 16), t.Every)
}

// wait returns at the first of these, or when connections are to be made anew; asked is
// true when gRPC asked again.
func (f *follower) wait(ctx context.Context, changed <-chan struct{}, due <-chan time.Time, again <-chan struct{}) (asked bool) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	case <-f.renewed:
	case <-again:
		return true
	}
	return false
}

// superseded tells whether what was just done was broken off for something newer.
func superseded(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return ctx.Err() != nil
	}
}

// tell gives gRPC the addresses of these gateways: at once those that need no
// lookup or were looked up before, then all. It breaks off when changed is closed.
func (f *follower) tell(ctx context.Context, addresses []string, changed <-chan struct{}) error {
	f.forget(addresses)
	f.update(f.flat(addresses))
	hosts := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !isHostName(a) })
	if len(hosts) == 0 {
		return nil
	}
	err := f.lookUp(ctx, hosts, changed)
	f.update(f.flat(addresses))
	return err
}

// complain reports a failed lookup: to gRPC when there is no address at all, and in
// the log the first time in a row. A failing lookup takes no address away.
func (f *follower) complain(err error, failures int) {
	if len(f.told) == 0 {
		f.cc.ReportError(fmt.Errorf("dial %s: cluster %s: %w", f.name, f.cluster, err))
	}
	if failures == 0 {
		f.names.log.Warn("a gateway's host name can't be looked up; going on with the addresses known so far",
			"cluster", f.cluster, "known", len(f.told), "err", err)
	}
}

// absent waits while the view leads to the cluster no more, or not yet. It takes
// nothing away: a call that was resolved a moment before must still get through, and
// later ones don't come here, since lookups go by the view. daprd closes the
// connection once it is idle.
func (f *follower) absent(ctx context.Context, changed <-chan struct{}) {
	if len(f.told) == 0 {
		f.wait(ctx, changed, time.After(f.names.times.Grace), nil)
		if superseded(ctx, changed) {
			return
		}
		f.cc.ReportError(noGateway(f.name, f.cluster))
	}
	f.wait(ctx, changed, nil, nil)
}

// update tells gRPC the addresses if they are others than before, or to be connected to anew. Every address is
// an endpoint of its own: round_robin connects to all of them, so that when
// one is lost the others are ready.
func (f *follower) update(addresses []string) {
	turns := f.turn.Load()
	if len(addresses) == 0 || turns == f.turns && slices.Equal(addresses, f.told) {
		return
	}
	f.told, f.turns = addresses, turns
	f.dialled.Store(&addresses)
	state := resolver.State{
		Addresses:     make([]resolver.Address, len(addresses)),
		ServiceConfig: f.cc.ParseServiceConfig(f.serviceConfig(len(addresses))),
		Attributes:    told{f, turns}.attributes(),
	}
	for i, a := range addresses {
		state.Addresses[i].Addr = a
	}
	_ = f.cc.UpdateState(state) // gRPC's answer is advice to look up again, which happens anyway
}

// flat lists what is known of these gateways, each address once, in their order.
func (f *follower) flat(addresses []string) []string {
	var flat []string
	for _, a := range addresses {
		resolved := f.known[a]
		if !isHostName(a) {
			resolved = []string{a}
		}
		for _, r := range resolved {
			if !slices.Contains(flat, r) {
				flat = append(flat, r)
			}
		}
	}
	return flat
}

// forget drops lookups of gateways that are no more.
func (f *follower) forget(addresses []string) {
	for a := range f.known {
		if !slices.Contains(addresses, a) {
			delete(f.known, a)
		}
	}
}

// lookUp looks up all hosts at once. A host whose lookup fails keeps its last
// addresses.
func (f *follower) lookUp(ctx context.Context, hosts []string, changed <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, f.names.times.Lookup)
	defer cancel()
	var (
		results = make([][]string, len(hosts))
		errs    = make([]error, len(hosts))
		wg      sync.WaitGroup
		ended   = make(chan struct{})
	)
	for i, host := range hosts {
		wg.Go(func() { results[i], errs[i] = f.lookUpOne(ctx, host) })
	}
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-changed: // what is being looked up may not count any more
		cancel()
		<-ended
	}
	for i, host := range hosts {
		if errs[i] == nil && !sameSet(f.known[host], results[i]) {
			f.known[host] = results[i]
		}
	}
	return errors.Join(errs...)
}

func (f *follower) lookUpOne(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("gateway address %q: want host:port: %w", address, err)
	}
	ips, err := f.names.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up gateway %s: %w", address, err)
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("look up gateway %s: no address", address)
	}
	resolved := make([]string, len(ips))
	for i, ip := range ips {
		resolved[i] = net.JoinHostPort(ip, port)
	}
	return resolved, nil
}

// sameSet tells whether a and b hold the same addresses. DNS servers shuffle their
// answers; that is no change.
func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// isHostName tells whether a gateway's address needs a lookup.
func isHostName(address string) bool {
	_, err := netip.ParseAddrPort(address)
	return err != nil
}

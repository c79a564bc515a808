package dial

import (
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// evidence is what calls of this process do not get to in other clusters, for the resolver
// service: which gateways take no connections, and which apps behind them say nothing.
type reachability struct {
	report func([]nameresolution.Unreached)

	mu        sync.Mutex
	endpoints map[*endpoint]reachState
	pending   bool
	reported  bool // something, in the last report
}

// stands is how a point of another cluster stands. One that is connecting for the first time
// is none yet.
type reachState struct {
	reached      bool
	noConnection bool // it is bad, and not even a connection is to be had
	since        time.Time
	reason       string
}

// reportAfter is how long changes are gathered before they are told.
const reportDelay = 100 * time.Millisecond

// note takes in how a point stands by now. It wants balancing.mu.
func (r *reachability) update(p *endpoint) {
	if p.viewAddress != "" {
		return // of the caller's own cluster, or on its network: the service sees it itself
	}
	now := reachState{since: time.Now()}
	switch {
	case p.state == connectivity.Ready && !p.unresponsive.Load():
		now.reached = true
	case p.state == connectivity.Ready:
		now.reason = "it is connected, and does not answer"
	case p.err != nil && p.refusedByGateway():
		return // the gateway is there; the instance is not
	case p.err != nil:
		now.noConnection, now.reason = true, p.err.Error()
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.endpoints[p]; ok && old.reached == now.reached && old.noConnection == now.noConnection {
		return
	}
	r.endpoints[p] = now
	r.scheduleReport()
}

// refusedByGateway tells whether the gateway took the connection and ended it itself.
func (e *endpoint) refusedByGateway() bool {
	return strings.Contains(e.err.Error(), "remote error: tls:") || strings.Contains(e.err.Error(), "EOF")
}

// forget leaves a point out from now on.
func (r *reachability) remove(p *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.endpoints[p]; ok {
		delete(r.endpoints, p)
		r.scheduleReport()
	}
}

// bad tells whether a point does not get to its gateway.
func (r *reachability) unreached(p *endpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.endpoints[p]
	return ok && !s.reached
}

// tell reports what stands, a moment later. It wants the lock.
func (r *reachability) scheduleReport() {
	if r.report == nil || r.pending {
		return
	}
	r.pending = true
	time.AfterFunc(reportDelay, func() {
		r.mu.Lock()
		r.pending = false
		all := r.summarize()
		silent := len(all) == 0 && !r.reported
		r.reported = len(all) > 0
		r.mu.Unlock()
		if !silent {
			r.report(all)
		}
	})
}

// unreached says what is not reached: an app behind a gateway, where none of its points
// there is good; a gateway, where no point of any app is and one can't even connect; and all
// of a cluster, where that is so of each of its gateways. It wants the lock.
func (r *reachability) summarize() (all []nameresolution.Unreached) {
	type gateway struct{ cluster, address string }
	type behind struct {
		gateway
		app catalog.App
	}
	good := map[any]bool{}
	worst := map[behind]reachState{}
	for p, s := range r.endpoints {
		g := gateway{p.cluster, p.address}
		b := behind{g, p.channel.app}
		if s.reached {
			good[g], good[b], good[p.cluster] = true, true, true
			continue
		}
		if old, ok := worst[b]; !ok || s.noConnection && !old.noConnection || s.noConnection == old.noConnection && s.since.Before(old.since) {
			worst[b] = s
		}
	}
	entries := map[nameresolution.Unreached]reachState{}
	for b, s := range worst {
		u := nameresolution.Unreached{Cluster: b.cluster}
		switch {
		case good[b]:
			continue
		case !s.noConnection || good[b.gateway]:
			u.Gateway, u.App = b.address, b.app
		case good[b.cluster]:
			u.Gateway = b.address
		}
		if old, ok := entries[u]; !ok || s.since.Before(old.since) {
			entries[u] = s
		}
	}
	for u, s := range entries {
		u.Since, u.Why = s.since, s.reason
		all = append(all, u)
	}
	return all
}

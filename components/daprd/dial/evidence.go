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
type evidence struct {
	report func([]nameresolution.Unreached)

	mu      sync.Mutex
	points  map[*point]stands
	pending bool
	said    bool // something, in the last report
}

// stands is how a point of another cluster stands. One that is connecting for the first time
// is none yet.
type stands struct {
	good  bool
	dials bool // it is bad, and not even a connection is to be had
	since time.Time
	why   string
}

// reportAfter is how long changes are gathered before they are told.
const reportAfter = 100 * time.Millisecond

// note takes in how a point stands by now. It wants balancing.mu.
func (e *evidence) note(p *point) {
	if p.given != "" {
		return // of the caller's own cluster, or on its network: the service sees it itself
	}
	now := stands{since: time.Now()}
	switch {
	case p.state == connectivity.Ready && !p.doubted.Load():
		now.good = true
	case p.state == connectivity.Ready:
		now.why = "it is connected, and does not answer"
	case p.err != nil && p.refusedByGateway():
		return // the gateway is there; the instance is not
	case p.err != nil:
		now.dials, now.why = true, p.err.Error()
	default:
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if old, ok := e.points[p]; ok && old.good == now.good && old.dials == now.dials {
		return
	}
	e.points[p] = now
	e.tell()
}

// refusedByGateway tells whether the gateway took the connection and ended it itself.
func (p *point) refusedByGateway() bool {
	return strings.Contains(p.err.Error(), "remote error: tls:") || strings.Contains(p.err.Error(), "EOF")
}

// forget leaves a point out from now on.
func (e *evidence) forget(p *point) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.points[p]; ok {
		delete(e.points, p)
		e.tell()
	}
}

// bad tells whether a point does not get to its gateway.
func (e *evidence) bad(p *point) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.points[p]
	return ok && !s.good
}

// tell reports what stands, a moment later. It wants the lock.
func (e *evidence) tell() {
	if e.report == nil || e.pending {
		return
	}
	e.pending = true
	time.AfterFunc(reportAfter, func() {
		e.mu.Lock()
		e.pending = false
		all := e.unreached()
		silent := len(all) == 0 && !e.said
		e.said = len(all) > 0
		e.mu.Unlock()
		if !silent {
			e.report(all)
		}
	})
}

// unreached says what is not reached: an app behind a gateway, where none of its points
// there is good; a gateway, where no point of any app is and one can't even connect; and all
// of a cluster, where that is so of each of its gateways. It wants the lock.
func (e *evidence) unreached() (all []nameresolution.Unreached) {
	type gateway struct{ cluster, address string }
	type behind struct {
		gateway
		app catalog.App
	}
	good := map[any]bool{}
	worst := map[behind]stands{}
	for p, s := range e.points {
		g := gateway{p.cluster, p.address}
		b := behind{g, p.channel.app}
		if s.good {
			good[g], good[b], good[p.cluster] = true, true, true
			continue
		}
		if old, ok := worst[b]; !ok || s.dials && !old.dials || s.dials == old.dials && s.since.Before(old.since) {
			worst[b] = s
		}
	}
	entries := map[nameresolution.Unreached]stands{}
	for b, s := range worst {
		u := nameresolution.Unreached{Cluster: b.cluster}
		switch {
		case good[b]:
			continue
		case !s.dials || good[b.gateway]:
			u.Gateway, u.App = b.address, b.app
		case good[b.cluster]:
			u.Gateway = b.address
		}
		if old, ok := entries[u]; !ok || s.since.Before(old.since) {
			entries[u] = s
		}
	}
	for u, s := range entries {
		u.Since, u.Why = s.since, s.why
		all = append(all, u)
	}
	return all
}

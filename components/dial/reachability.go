package dial

import (
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// reachability tells the resolver service what this process does not reach in other clusters:
// gateways that refuse connections, and apps behind gateways that do not answer.
type reachability struct {
	report func([]nameresolution.Unreached)

	mu        sync.Mutex
	endpoints map[*endpoint]reachState
	pending   bool // a report is due
	reported  bool // the last report had an entry
}

// reachState is whether an endpoint in another cluster is reached. An endpoint that connects for
// the first time has none yet.
type reachState struct {
	reached      bool
	noConnection bool // not reached, not even by a connection
	since        time.Time
	reason       string
}

// reportDelay is how long changes are gathered before a report.
const reportDelay = 100 * time.Millisecond

// update records the state of an endpoint. The caller holds planBalancer.mu.
func (r *reachability) update(e *endpoint) {
	if e.viewAddress != "" {
		return // in the caller's own cluster or network, which the service sees by itself
	}
	now := reachState{since: time.Now()}
	switch {
	case e.state == connectivity.Ready && !e.unresponsive.Load():
		now.reached = true
	case e.state == connectivity.Ready:
		now.reason = "it is connected, but does not answer"
	case e.err != nil && e.refusedByGateway():
		return // the gateway is reached, though the instance is not
	case e.err != nil:
		now.noConnection, now.reason = true, e.err.Error()
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.endpoints[e]; ok && old.reached == now.reached && old.noConnection == now.noConnection {
		return
	}
	if now.reached {
		r.forgetFailures(e)
	}
	r.endpoints[e] = now
	r.scheduleReport()
}

// forgetFailures forgets what other endpoints found before of the gateway of an endpoint that is
// reached now. Those that still fail say so at their next attempt. Others may not attempt it for
// long: no call needs them. The caller holds the lock.
func (r *reachability) forgetFailures(e *endpoint) {
	for other, s := range r.endpoints {
		if s.noConnection && other.cluster == e.cluster && other.address == e.address {
			delete(r.endpoints, other)
		}
	}
}

// refusedByGateway reports whether the gateway accepted the connection and then closed it, since it
// leads to no such instance. Alerts about certificates are not the gateway's: it has none to check.
func (e *endpoint) refusedByGateway() bool {
	text := e.err.Error()
	_, alert, ok := strings.Cut(text, "remote error: tls:")
	return ok && !strings.Contains(alert, "certificate") && !strings.Contains(alert, "access denied") || !ok && strings.Contains(text, "EOF")
}

// remove forgets an endpoint.
func (r *reachability) remove(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.endpoints[e]; ok {
		delete(r.endpoints, e)
		r.scheduleReport()
	}
}

// unreached reports whether an endpoint is known not to be reached.
func (r *reachability) unreached(e *endpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.endpoints[e]
	return ok && !s.reached
}

// scheduleReport sends a report after reportDelay. The caller holds the lock.
func (r *reachability) scheduleReport() {
	if r.report == nil || r.pending {
		return
	}
	r.pending = true
	time.AfterFunc(reportDelay, func() {
		r.mu.Lock()
		r.pending = false
		all := r.summarize()
		unchanged := len(all) == 0 && !r.reported
		r.reported = len(all) > 0
		r.mu.Unlock()
		if !unchanged {
			r.report(all)
		}
	})
}

// scope is a cluster, a gateway of it, or an app behind that gateway. Empty fields stand for all.
type scope struct {
	cluster, gateway string
	app              catalog.App
}

// summarize returns the widest scopes that are not reached:
//   - an app behind a gateway, if no endpoint of the app there is reached;
//   - a gateway, if no endpoint of any app there is reached, and none can even connect;
//   - a cluster, if that holds for all its gateways.
//
// The caller holds the lock.
func (r *reachability) summarize() (all []nameresolution.Unreached) {
	reached := map[scope]bool{}
	worst := map[scope]reachState{} // by app behind a gateway
	for e, s := range r.endpoints {
		app := scope{e.cluster, e.address, e.channel.app}
		if s.reached {
			reached[app], reached[scope{cluster: e.cluster, gateway: e.address}], reached[scope{cluster: e.cluster}] = true, true, true
			continue
		}
		if old, ok := worst[app]; !ok || s.noConnection && !old.noConnection || s.noConnection == old.noConnection && s.since.Before(old.since) {
			worst[app] = s
		}
	}
	oldest := map[scope]reachState{}
	for app, s := range worst {
		listed := scope{cluster: app.cluster}
		switch {
		case reached[app]:
			continue
		case !s.noConnection || reached[scope{cluster: app.cluster, gateway: app.gateway}]:
			listed = app
		case reached[listed]:
			listed.gateway = app.gateway
		}
		if old, ok := oldest[listed]; !ok || s.since.Before(old.since) {
			oldest[listed] = s
		}
	}
	for s, state := range oldest {
		all = append(all, nameresolution.Unreached{Cluster: s.cluster, Gateway: s.gateway, App: s.app, Since: state.since, Why: state.reason})
	}
	return all
}

package zone

import (
	"net/netip"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// knownCaller is a caller that has asked of late.
type knownCaller struct {
	view  *topology.Subscription
	asked atomic.Bool // since it was looked after
}

// idle tells whether the caller has not asked since the last time.
func (a *knownCaller) idle() bool { return !a.asked.Swap(false) }

// maxAskers is how many callers' views are followed. Those of more are looked up for each
// query.
const maxAskers = 100_000

// view is an app's view as it stands; that of the zero App is the one of apps without a
// selection. ok is false until the store's full set is in.
func (z *Zone) view(app catalog.App) (view *catalog.View, ok bool) {
	a, known := z.knownCallers.all.Load().Get(app)
	if !known {
		return z.firstView(app)
	}
	if !a.asked.Load() { // written seldom, so that cores need not pass it to and fro
		a.asked.Store(true)
	}
	return a.view.View()
}

func (z *Zone) firstView(app catalog.App) (view *catalog.View, ok bool) {
	z.knownCallers.mu.Lock()
	defer z.knownCallers.mu.Unlock()
	all := z.knownCallers.all.Load()
	if a, known := all.Get(app); known {
		return a.view.View()
	}
	a := &knownCaller{view: z.topology.Subscribe(app)}
	if all.Len() >= maxAskers {
		defer a.view.Close()
		return a.view.View()
	}
	a.asked.Store(true)
	next := all.With(catalog.Edit[*knownCaller]{App: app, Value: a})
	z.knownCallers.all.Store(&next)
	return a.view.View()
}

// release stops following the views of some callers. A query that has just found one
// reads its view as it is now.
func (z *Zone) release(which func(*knownCaller) bool) {
	z.knownCallers.mu.Lock()
	defer z.knownCallers.mu.Unlock()
	all := z.knownCallers.all.Load()
	var gone []catalog.Edit[*knownCaller]
	var close []*knownCaller
	for app, a := range all.All() {
		if which(a) {
			gone, close = append(gone, catalog.Edit[*knownCaller]{App: app, Remove: true}), append(close, a)
		}
	}
	next := all.With(gone...)
	z.knownCallers.all.Store(&next)
	for _, a := range close {
		a.view.Close()
	}
}

// who is for whom a query asks.
type who struct {
	app     catalog.App
	known   bool       // app is set
	shared  bool       // several apps have the address
	subnet  bool       // the address is the one that a forwarder has sent
	told    bool       // a listed forwarder has sent a subnet, maybe not a whole address
	address netip.Addr // that was looked up
}

// ask finds out who asks: whom the listener is bound to, or whom the address belongs to
// that a listed forwarder sends, or the sender's own.
func (x *exchange) ask() {
	z, w := x.zone, &x.who
	w.address = plain(x.query.From.Addr())
	believed := len(z.cfg.Forwarders) > 0 && z.believes(w.address)
	if believed {
		x.rise(transport.Forwarder)
	}
	callers, _ := z.topology.Callers().Load()
	if x.query.As != (catalog.App{}) {
		w.app, w.known = x.query.As, true
		if x.query.Standing == transport.Stranger { // whoever gets there is the app, and need not be anybody's instance
			if _, ok := callers.Get(w.address); ok {
				x.rise(transport.Instance)
			}
		}
		return
	}
	if believed {
		w.told = x.asked.Subnet.Sent // so that the answer is kept for that network alone
		if client, ok := x.asked.Subnet.Whole(); ok {
			w.address, w.subnet = client.Unmap(), true
		}
	}
	caller, ok := callers.Get(w.address)
	if !ok {
		return
	}
	if !w.subnet {
		x.rise(transport.Instance)
	}
	w.app, w.known, w.shared = caller.App, !caller.Shared, caller.Shared
}

// rise gives the sender a standing, unless it has a better one.
func (x *exchange) rise(s transport.Standing) { x.query.Standing = max(x.query.Standing, s) }

// plain is an address without a zone of its own, as of fe80::1%eth0.
func plain(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	return a.Unmap().WithZone("")
}

func (z *Zone) believes(sender netip.Addr) bool {
	for _, forwarders := range z.cfg.Forwarders {
		if forwarders.Contains(sender) {
			return true
		}
	}
	return false
}

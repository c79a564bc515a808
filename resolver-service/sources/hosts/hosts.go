// Package hosts looks up the host names of gateways, for edges whose clients need addresses.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
)

// Bounds and times of looking host names up.
const (
	refreshEvery  = 30 * time.Second // or as soon as the answer runs out
	keepGone      = 5 * time.Minute  // for which addresses stand after DNS said that the name has none
	retryAfter    = 5 * time.Second  // after a failure; twice as long each time, up to refreshEvery
	lookupTimeout = 10 * time.Second
	maxHosts      = 1000
	maxLookups    = 8  // at a time
	maxAddresses  = 32 // of one host
)

// Hosts knows the addresses of gateways that Cluster objects name by host name. Names are
// looked up in the background: at once when they are new, and again when the answer runs out, or
// after refreshEvery. While a name can't be looked up, the last addresses stand. Those of a name
// that is gone stand for keepGone, since a zone may lose a name by mistake.
type Hosts struct {
	edge     string // whose it is, for log lines
	clusters *live.Value[*catalog.Gateways]
	domain   catalog.Domain
	lookup   lookup.Func
	log      *slog.Logger

	published live.Value[Addresses]

	looked  chan struct{}
	results chan result
	slots   chan struct{}

	mu     sync.Mutex // run changes what follows, status reads it
	all    map[string]*host
	beyond int // names over maxHosts
}

// Addresses are those of names. [Addresses.Of] reads them.
type Addresses map[string][]netip.Addr // in lower case without a final dot

// Of returns the addresses of a host, which may be an address itself.
func (a Addresses) Of(host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}
	}
	return a[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// host is one name.
type host struct {
	addresses []netip.Addr
	err       error     // why it can't be looked up now
	since     time.Time // since when
	gone      time.Time // since when DNS says that the name has no address; zero: it does not
	pause     time.Duration
	next      time.Time // when it is looked up again
	flying    bool      // it is being looked up
}

type result struct {
	name      string
	addresses []netip.Addr
	ttl       time.Duration
	err       error
}

// New makes the hosts of an edge, and looks nothing up yet. Names in domain fail: a lookup may
// well end up at this service.
func New(edge string, clusters *live.Value[*catalog.Gateways], domain catalog.Domain, find lookup.Func, log *slog.Logger) *Hosts {
	return &Hosts{
		edge: edge, clusters: clusters, domain: domain, lookup: find, log: log,
		looked: make(chan struct{}), results: make(chan result), slots: make(chan struct{}, maxLookups), all: map[string]*host{},
	}
}

// Published is the addresses that are known.
func (hs *Hosts) Published() *live.Value[Addresses] { return &hs.published }

// Looked is closed once every name of the first Cluster objects was looked up, or could not be.
func (hs *Hosts) Looked() <-chan struct{} { return hs.looked }

// Run looks names up until ctx ends.
func (hs *Hosts) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var flights sync.WaitGroup
	defer flights.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := sync.OnceFunc(func() { close(hs.looked) })
	for {
		gateways, ok, changed := hs.clusters.Follow()
		if ok {
			hs.follow(gateways)
		}
		for _, name := range hs.due(time.Now()) {
			flights.Go(func() { hs.fly(ctx, name) })
		}
		hs.publish()
		if ok && hs.lookedUp() {
			looked()
		}
		timer.Reset(hs.untilNext(time.Now()))
		select {
		case <-changed:
		case <-timer.C:
		case r := <-hs.results:
			hs.land(r, time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// follow takes in which names there are.
func (hs *Hosts) follow(gateways *catalog.Gateways) {
	names := hostNames(gateways)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.beyond = max(0, len(names)-maxHosts)
	names = names[:len(names)-hs.beyond]
	maps.DeleteFunc(hs.all, func(name string, _ *host) bool {
		_, found := slices.BinarySearch(names, name)
		return !found
	})
	for _, name := range names {
		if hs.all[name] == nil {
			hs.all[name] = &host{}
		}
	}
}

// hostNames are those among the gateways' addresses, sorted.
func hostNames(gateways *catalog.Gateways) []string {
	var names []string
	add := func(address string) {
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return // no Cluster object is without
		}
		if _, err := netip.ParseAddr(name); err != nil {
			names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
		}
	}
	for _, addresses := range gateways.Addresses {
		for _, address := range addresses {
			add(address)
		}
	}
	for _, apps := range gateways.Apps {
		for _, g := range apps {
			add(g.Address)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// due are the names to look up now. They fly from then on.
func (hs *Hosts) due(now time.Time) []string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var due []string
	for name, h := range hs.all {
		switch {
		case h.flying || h.next.After(now):
		case hs.ours(name):
			h.fail(fmt.Errorf("the name is in this server's own domain %s, and would be asked of itself; name the gateway by its address, or by a name elsewhere", hs.domain), now)
			h.next = now.Add(refreshEvery)
		default:
			h.flying = true
			due = append(due, name)
		}
	}
	return due
}

// ours tells whether a name is one that this server answers. The system may well ask us.
func (hs *Hosts) ours(name string) bool {
	return name == string(hs.domain) || strings.HasSuffix(name, "."+string(hs.domain))
}

// lookedUp tells whether all names were.
func (hs *Hosts) lookedUp() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h.addresses == nil && h.err == nil {
			return false
		}
	}
	return true
}

// fly looks one name up.
func (hs *Hosts) fly(ctx context.Context, name string) {
	select {
	case hs.slots <- struct{}{}:
		defer func() { <-hs.slots }()
	case <-ctx.Done():
		return
	}
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, ttl, err := hs.lookup(limited, "ip", name)
	select {
	case hs.results <- result{name, tidy(addresses), ttl, err}:
	case <-ctx.Done():
	}
}

// tidy sorts addresses, and leaves out those that nobody else could reach.
func tidy(addresses []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(addresses))
	for _, a := range addresses {
		if a = a.Unmap(); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	return all[:min(len(all), maxAddresses)]
}

// land takes in how a look-up ended.
func (hs *Hosts) land(r result, now time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.all[r.name]
	if h == nil {
		return
	}
	h.flying = false
	if r.err == nil && len(r.addresses) == 0 {
		r.err = errors.New("it has no address that can be reached from elsewhere")
	}
	if r.err == nil {
		if h.err != nil {
			hs.log.Info(hs.edge+": a gateway's host name is resolved again", "host", r.name)
		}
		if r.ttl == 0 {
			r.ttl = refreshEvery
		}
		*h = host{addresses: r.addresses, next: now.Add(min(r.ttl, refreshEvery))}
		return
	}
	if h.err == nil {
		hs.log.Warn(hs.edge+": a gateway's host name can't be resolved", "host", r.name, "err", r.err, "addresses", len(h.addresses))
	}
	switch gone := isGone(r.err); {
	case !gone:
		h.gone = time.Time{}
	case h.gone.IsZero():
		h.gone = now
	case now.Sub(h.gone) >= keepGone:
		h.addresses = nil
	}
	h.fail(r.err, now)
}

// isGone tells whether DNS has said that the name has no address, and not just failed.
func isGone(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound && !e.IsTemporary && !e.IsTimeout
}

func (h *host) fail(err error, now time.Time) {
	if h.err == nil {
		h.since = now
	}
	h.pause = min(max(2*h.pause, retryAfter), refreshEvery)
	h.err, h.next = err, now.Add(h.pause)
}

// publish publishes the addresses, if they are others.
func (hs *Hosts) publish() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := make(Addresses, len(hs.all))
	for name, h := range hs.all {
		if len(h.addresses) > 0 {
			now[name] = h.addresses
		}
	}
	was, ok := hs.published.Load()
	if !ok && len(now) == 0 || ok && maps.EqualFunc(was, now, slices.Equal) {
		return
	}
	hs.published.Store(now)
}

// untilNext is the time until a name is to be looked up.
func (hs *Hosts) untilNext(now time.Time) time.Duration {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	next := refreshEvery
	for _, h := range hs.all {
		if !h.flying {
			next = min(next, max(0, h.next.Sub(now)))
		}
	}
	return next
}

// Status tells of each name, sorted.
func (hs *Hosts) Status() []*v1alpha1.DNSHost {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var all []*v1alpha1.DNSHost
	for _, name := range slices.Sorted(maps.Keys(hs.all)) {
		h := hs.all[name]
		said := &v1alpha1.DNSHost{Name: name}
		for _, a := range h.addresses {
			said.Addresses = append(said.Addresses, a.String())
		}
		if h.err != nil {
			said.Error, said.FailingUnixMs = h.err.Error(), h.since.UnixMilli()
		}
		all = append(all, said)
	}
	if hs.beyond > 0 {
		all = append(all, &v1alpha1.DNSHost{Name: "…", Error: fmt.Sprintf("%d more names are not looked up; at most %d are", hs.beyond, maxHosts)})
	}
	return all
}

// Failing is how many names can't be looked up.
func (hs *Hosts) Failing() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	n := hs.beyond
	for _, h := range hs.all {
		if h.err != nil {
			n++
		}
	}
	return n
}

// Troubles are the names that can't be looked up now, for pages of health.
func (hs *Hosts) Troubles() (all []string) {
	for _, h := range hs.Status() {
		if h.GetError() != "" {
			all = append(all, hs.edge+": gateway "+h.GetName()+" not resolved: "+h.GetError())
		}
	}
	return all
}

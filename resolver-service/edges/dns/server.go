// Package dns answers DNS: it puts the zone, the forwarder of other names and the
// transport together, and knows the addresses behind gateways' host names.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/forward"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/zone"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config is what a server needs beside its listeners.
type Config struct {
	Zone    zone.Config      // without Forward and Hosts, which the server makes
	Forward []netip.AddrPort // that names outside the zone are asked of; none: they are REFUSED
	Cache   int              // of their answers, as [forward.Config] has it
}

// Server is a DNS server.
type Server struct {
	cfg       Config
	log       *slog.Logger
	listeners *Listeners
	zone      *zone.Zone
	forward   *forward.Forwarder // nil: nothing is forwarded
	resolver  *net.Resolver      // by forward
	hosts     *hosts.Hosts
}

// names is how host names are looked up.
func (s *Server) names() *net.Resolver {
	if s.resolver == nil {
		return net.DefaultResolver
	}
	return s.resolver
}

// New makes a server of listeners that are open, and starts nothing. Its metrics are
// registered with to.
func New(cfg Config, listeners *Listeners, t *topology.Topology, to prometheus.Registerer, log *slog.Logger) (*Server, error) {
	s := &Server{cfg: cfg, log: log, listeners: listeners}
	if len(cfg.Forward) > 0 {
		var err error
		if s.forward, err = forward.New(forward.Config{Upstreams: cfg.Forward, Own: listeners.own(), Cache: cfg.Cache}, log); err != nil {
			return nil, err
		}
		cfg.Zone.Forward = s.forward
		s.resolver = through(s.forward)
	}
	s.hosts = hosts.New("dns", t.Clusters(), cfg.Zone.Domain, lookup.Through(s.names), log)
	cfg.Zone.Hosts = s.hosts.Published()
	s.zone = zone.New(cfg.Zone, t, log)
	if err := to.Register(s); err != nil {
		return nil, fmt.Errorf("dns: register metrics: %w", err)
	}
	return s, nil
}

// own is where the listeners listen.
func (ls *Listeners) own() []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range ls.all {
		if a, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// Run answers until ctx ends or a listener fails. It lets the queries that run finish.
func (s *Server) Run(ctx context.Context) error {
	s.listeners.served.Store(true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	behind, end := context.WithCancel(context.WithoutCancel(ctx)) // what listeners need ends after them
	defer end()
	var front, back sync.WaitGroup
	errs := make(chan error, 3+len(s.listeners.all))
	run := func(parts *sync.WaitGroup, ctx context.Context, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	run(&back, behind, s.zone.Run)
	run(&back, behind, s.hosts.Run)
	if s.forward != nil {
		run(&back, behind, s.forward.Run)
	}
	for _, l := range s.listeners.all {
		run(&front, ctx, func(ctx context.Context) error { return l.Serve(ctx, s.zone, s.log) })
	}
	<-ctx.Done()
	front.Wait()
	end()
	back.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// Status is how the server is, for operators.
func (s *Server) Status() *v1alpha1.DNSStatus {
	answer := &v1alpha1.DNSStatus{Hosts: s.hosts.Status()}
	answer.ByServerName, answer.OtherPort = s.zone.Unusable()
	for _, l := range s.listeners.all {
		said := &v1alpha1.DNSListener{Address: l.Addr().String(), Protocols: l.protocols()}
		if l.As != (catalog.App{}) {
			said.As = l.As.String()
		}
		answer.Listeners = append(answer.Listeners, said)
	}
	if s.forward != nil {
		for _, u := range s.forward.Status() {
			said := &v1alpha1.DNSUpstream{Address: u.Address.String(), Up: u.Up}
			if !u.Up && u.Err != nil {
				said.Error = u.Err.Error()
			}
			if !u.Up {
				said.FailingUnixMs = unixMs(u.Since)
			}
			answer.Upstreams = append(answer.Upstreams, said)
		}
	}
	return answer
}

// Trusted is the certificate that clients are shown; none without TLS.
func (s *Server) Trusted() []identity.Trusted {
	if s.listeners.cert == nil {
		return nil
	}
	return []identity.Trusted{s.listeners.cert.Trusted()}
}

// unixMs is 0 for no time.
func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

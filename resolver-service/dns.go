package resolverservice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/dns"
)

// listenDNS opens the listeners for DNS.
func (s *Service) listenDNS() error {
	all := make([]dns.Listen, len(s.cfg.Listen.DNS))
	for i, l := range s.cfg.Listen.DNS {
		as, _ := catalog.ParseApp(l.As) // was checked, or is nobody
		all[i] = dns.Listen{
			Address: l.Address, As: as, TLS: l.TLS, RateLimit: s.cfg.DNS.rateLimit(l), MaxTCP: s.bounds.dns, Sockets: s.cfg.Cores,
		}
		if tcp, err := s.takeOver("dns", l.Address); err != nil {
			return err
		} else if tcp != nil {
			all[i].TCP = tcp
		}
	}
	if len(all) == 0 {
		return nil
	}
	var files dns.Files
	if t := s.cfg.DNS.TLS; t != nil {
		files = dns.Files{Cert: t.Cert, Key: t.Key}
	}
	open, err := dns.Open(all, files, s.log)
	if err == nil {
		s.dnsListeners = open
		return nil
	}
	var refused *dns.ListenError
	if !errors.As(err, &refused) {
		return err
	}
	by := ""
	if p := refused.Protocol(); p != "" {
		by = " by " + strings.ToUpper(p)
	}
	return fmt.Errorf("listen.dns: %s%s: %w; %s", refused.Address, by, plainError(refused.Err), adviceDNS(refused.Address, refused.Err))
}

// adviceDNS is what to do about an address that can't be listened on. Port 53 has reasons
// of its own.
func adviceDNS(address string, err error) string {
	_, port, _ := net.SplitHostPort(address)
	switch low := port == "53" || port == "853"; {
	case low && errors.Is(err, syscall.EADDRINUSE):
		return "another DNS server has that port, most often systemd-resolved: look with \"ss -lnup sport = :" + port +
			"\"; write an address of its own such as 127.0.0.2:" + port + ", or DNSStubListener=no in /etc/systemd/resolved.conf"
	case low && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)):
		return "ports below 1024 are for root: give the service the capability CAP_NET_BIND_SERVICE, or write a port above 1023 such as 7453"
	default:
		return advice(err)
	}
}

// buildDNS makes the DNS server, where there is a listener for it.
func (s *Service) buildDNS() error {
	if s.dnsListeners == nil {
		return nil
	}
	z, err := s.cfg.zone()
	if err != nil {
		return err
	}
	z.Settled = s.settled
	cfg := dns.Config{Zone: z, Forward: s.cfg.DNS.upstreams()}
	if c := s.cfg.DNS.Cache; c != nil {
		if cfg.Cache = *c; *c == 0 {
			cfg.Cache = -1 // none
		}
	}
	s.dns, err = dns.New(cfg, s.dnsListeners, s.topology, s.registry, s.log)
	return err
}

// startDNS starts to answer.
func (s *Service) startDNS(edges *stage) {
	if s.dns != nil {
		edges.start("listen.dns", func(ctx context.Context) error { return s.dns.Run(ctx) })
	}
}

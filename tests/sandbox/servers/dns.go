package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// UnboundOptions says how an Unbound is run.
type UnboundOptions struct {
	Listen netip.AddrPort // UDP and TCP
	Place  sandbox.Place  // the network that it is in; nil: the one that this process is in

	// Config is more of unbound.conf: clauses, or first more lines of the clause server.
	Config string
}

// StartUnbound starts an Unbound, with its configuration and its log in dir, and waits
// until it serves. It has no trust anchors.
func StartUnbound(ctx context.Context, dir string, o UnboundOptions) (*sandbox.Process, error) {
	binary, err := sandbox.Binary("unbound")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`server:
	directory: %q
	pidfile: %q
	chroot: ""
	username: ""
	use-syslog: no
	do-daemonize: no
	interface: %s@%d
	access-control: 0.0.0.0/0 allow
	access-control: ::0/0 allow
	num-threads: 1
	so-rcvbuf: 0
	so-sndbuf: 0
`, dir, filepath.Join(dir, "unbound.pid"), o.Listen.Addr(), o.Listen.Port())
	config := filepath.Join(dir, "unbound.conf")
	if err := os.WriteFile(config, []byte(text+o.Config), 0o644); err != nil {
		return nil, fmt.Errorf("start Unbound: %w", err)
	}
	return startDNS(ctx, o.Listen, sandbox.Command{
		Name: "unbound", Path: binary, Args: []string{"-d", "-p", "-c", config}, LogDir: dir, Place: o.Place,
	})
}

// CoreDNSOptions says how a CoreDNS is run.
type CoreDNSOptions struct {
	Name     string         // of its files; "coredns" by default
	Listen   netip.AddrPort // one that the Corefile has: answers there show that it serves
	Place    sandbox.Place  // the network that it is in; nil: the one that this process is in
	Corefile string
}

// StartCoreDNS starts a CoreDNS, with its Corefile and its log in dir, and waits until it
// serves.
func StartCoreDNS(ctx context.Context, dir string, o CoreDNSOptions) (*sandbox.Process, error) {
	binary, err := sandbox.Binary("coredns")
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "coredns"
	}
	config := filepath.Join(dir, o.Name+".corefile")
	if err := os.WriteFile(config, []byte(o.Corefile), 0o644); err != nil {
		return nil, fmt.Errorf("start CoreDNS: %w", err)
	}
	return startDNS(ctx, o.Listen, sandbox.Command{
		Name: o.Name, Path: binary, Args: []string{"-conf", config}, LogDir: dir, Place: o.Place,
	})
}

// startDNS starts a DNS server and waits until it answers.
func startDNS(ctx context.Context, address netip.AddrPort, c sandbox.Command) (*sandbox.Process, error) {
	p, err := sandbox.Start(c)
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, p, func() bool { return answersDNS(c.Place, address.String()) }); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// answersDNS tells whether a server answers anything at all.
func answersDNS(place sandbox.Place, address string) bool {
	var conn net.Conn
	dial := func() (err error) {
		conn, err = net.DialTimeout("udp", address, time.Second)
		return err
	}
	var err error
	if place != nil {
		err = place.Do(dial)
	} else {
		err = dial()
	}
	if err != nil {
		return false
	}
	defer conn.Close()
	question := new(dns.Msg).SetQuestion("version.bind.", dns.TypeTXT)
	question.Question[0].Qclass = dns.ClassCHAOS
	_, _, err = (&dns.Client{Timeout: time.Second}).ExchangeWithConn(question, &dns.Conn{Conn: conn})
	return err == nil
}

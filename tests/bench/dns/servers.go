package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/sandbox"
)

// server is one that runs, and what was measured of it.
type server struct {
	name string
	addr netip.AddrPort
	*sandbox.Process
	results
}

// stage has the zone and the queries in files, and starts the servers.
type stage struct {
	dir     string
	names   int
	dnsperf string
}

func newStage(dir string, names int) (*stage, error) {
	s := &stage{dir: dir, names: names}
	var err error
	if s.dnsperf, err = sandbox.Binary("dnsperf"); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	return s, errors.Join(writeZone(s.path("zone"), names), writeQueries(s.path("queries"), names))
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// servers starts every server that is here, Knot first. What is not is left out and named.
func (s *stage) servers(ctx context.Context, only string) (all []*server, err error) {
	for _, kind := range []struct {
		name  string
		start func(ctx context.Context, dir string, addr netip.AddrPort) (*sandbox.Process, error)
	}{
		{reference, s.startKnot},
		{"NSD", s.startNSD},
		{"CoreDNS, two sockets", s.startCoreDNS},
		{"isthmus", s.startIsthmus},
	} {
		if !strings.Contains(strings.ToLower(kind.name), strings.ToLower(only)) {
			continue
		}
		started, err := s.start(ctx, kind.name, kind.start)
		if errors.Is(err, sandbox.ErrNoBinary) {
			fmt.Fprintf(os.Stderr, "left out: %v\n", err)
			continue
		}
		if err != nil {
			stopAll(all)
			return nil, fmt.Errorf("start %s: %w", kind.name, err)
		}
		all = append(all, started)
	}
	return all, nil
}

// reference is the server that ratios are to.
const reference = "Knot DNS"

func (s *stage) start(ctx context.Context, kind string, start func(context.Context, string, netip.AddrPort) (*sandbox.Process, error)) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.dir, "server-")
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	process, err := start(ctx, dir, at)
	if err != nil {
		return nil, err
	}
	started := &server{name: kind, addr: at, Process: process}
	if err := s.answers(ctx, started); err != nil {
		return nil, errors.Join(err, process.Kill())
	}
	return started, nil
}

// patience is how long a server may take to start.
const patience = time.Minute

// answers waits until a server answers with the last name's address.
func (s *stage) answers(ctx context.Context, of *server) error {
	last := s.names - 1
	question := new(dns.Msg).SetQuestion(name(last)+".", dns.TypeA)
	client := dns.Client{Timeout: time.Second}
	var told string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := of.Unexpected(); err != nil {
			return fmt.Errorf("%w:\n%s", err, of.Tail(10))
		}
		m, _, err := client.ExchangeContext(ctx, question, of.addr.String())
		if err != nil {
			told = err.Error()
			continue
		}
		if told = m.String(); len(m.Answer) == 1 {
			if a, ok := m.Answer[0].(*dns.A); ok && a.A.Equal(address(last).Addr().AsSlice()) {
				return nil
			}
		}
	}
	return fmt.Errorf("it does not answer with the address of %s: %s", name(last), told)
}

func (s *stage) startKnot(_ context.Context, dir string, at netip.AddrPort) (*sandbox.Process, error) {
	return s.startForeign("knotd", []string{"-c", "CONFIG"}, dir, at, `
server:
    listen: 127.0.0.1@PORT
    rundir: DIR
    udp-workers: CORES
    tcp-workers: 1
    background-workers: 1
database:
    storage: DIR
log:
  - target: stderr
    any: warning
zone:
  - domain: isthmus.internal
    file: ZONE
    zonefile-load: whole
    journal-content: none
`)
}

func (s *stage) startNSD(_ context.Context, dir string, at netip.AddrPort) (*sandbox.Process, error) {
	return s.startForeign("nsd", []string{"-d", "-c", "CONFIG"}, dir, at, `
server:
    ip-address: 127.0.0.1@PORT
    server-count: CORES
    reuseport: yes
    username: ""
    chroot: ""
    database: ""
    zonesdir: "DIR"
    pidfile: "DIR/nsd.pid"
    xfrdfile: "DIR/xfrd.state"
    zonelistfile: "DIR/zone.list"
    xfrdir: "DIR"
    rrl-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: isthmus.internal
    zonefile: ZONE
`)
}

func (s *stage) startCoreDNS(_ context.Context, dir string, at netip.AddrPort) (*sandbox.Process, error) {
	return s.startForeign("coredns", []string{"-conf", "CONFIG"}, dir, at, `
isthmus.internal:PORT {
    bind 127.0.0.1
    multisocket CORES
    file ZONE
}
`)
}

func (s *stage) startForeign(program string, args []string, dir string, at netip.AddrPort, config string) (*sandbox.Process, error) {
	path, err := sandbox.Binary(program)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, program+".conf")
	fill := strings.NewReplacer("CONFIG", file, "PORT", fmt.Sprint(at.Port()), "DIR", dir, "ZONE", s.path("zone"), "CORES", fmt.Sprint(runtime.NumCPU()))
	if err := os.WriteFile(file, []byte(fill.Replace(config)), 0o644); err != nil {
		return nil, err
	}
	var filled []string
	for _, a := range args {
		filled = append(filled, fill.Replace(a))
	}
	return sandbox.Start(sandbox.Command{Name: program, Path: path, Args: filled, LogDir: dir})
}

// startIsthmus starts a service whose DNS listener is one app's, so that its view counts.
func (s *stage) startIsthmus(ctx context.Context, dir string, at netip.AddrPort) (*sandbox.Process, error) {
	store := filepath.Join(dir, "isthmus.db")
	if err := writeStore(store, s.names); err != nil {
		return nil, err
	}
	box, err := sandbox.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	service, err := box.Service(ctx, sandbox.ServiceOptions{
		Cluster: cluster,
		Store:   map[string]any{"embedded": map[string]any{"path": store}},
		Listen:  map[string]any{"dns": []any{map[string]any{"address": at.String(), "as": asker.String()}}},
	})
	if err != nil {
		return nil, err
	}
	return service.Process, nil
}

// freePort is a port that is free by TCP and UDP.
func freePort() (uint16, error) {
	for {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		at := netip.MustParseAddrPort(tcp.Addr().String())
		udp, err := net.ListenPacket("udp", at.String())
		tcp.Close()
		if err == nil {
			udp.Close()
			return at.Port(), nil
		}
	}
}

func stopAll(servers []*server) {
	for _, s := range servers {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := s.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "dns:", err)
		}
		cancel()
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/bench/contender"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// server is one that runs, and what was measured of it.
type server struct {
	*contender.Running
	results
}

// stage has the zone and the queries in files, and starts the servers.
type stage struct {
	dir     string
	names   int
	dnsperf string
}

func newStage(dir string, names int) (s *stage, err error) {
	s = &stage{dir: dir, names: names}
	if s.dnsperf, err = sandbox.Binary("dnsperf"); err != nil {
		return nil, err
	}
	return s, errors.Join(writeZone(s.path("zone"), names), writeQueries(s.path("queries"), names))
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// reference is the server that ratios are to.
const reference = "Knot DNS"

// servers starts every server that is here, the reference first.
func (s *stage) servers(ctx context.Context, only string) (all []*server, err error) {
	fill := []string{"ZONE", s.path("zone"), "CORES", fmt.Sprint(runtime.NumCPU())}
	running, err := contender.StartAll(ctx, s.dir, only, []contender.Server{
		{Name: reference, Program: "knotd", Args: []string{"-c", "CONFIG"}, Config: knotConfig, Fill: fill},
		{Name: "NSD", Program: "nsd", Args: []string{"-d", "-c", "CONFIG"}, Config: nsdConfig, Fill: fill},
		{Name: "CoreDNS, two sockets", Program: "coredns", Args: []string{"-conf", "CONFIG"}, Config: corednsConfig, Fill: fill},
	}, s.answers)
	if err == nil && contender.Wanted("isthmus", only) {
		var ours *contender.Running
		ours, err = s.startIsthmus(ctx)
		if ours != nil {
			running = append(running, ours)
		}
	}
	for _, r := range running {
		all = append(all, &server{Running: r})
	}
	return all, err
}

// answers asks a server for the last name's address.
func (s *stage) answers(of *contender.Running) error {
	last := s.names - 1
	client := dns.Client{Timeout: time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name(last)+".", dns.TypeA), of.Addr)
	if err != nil {
		return err
	}
	if len(m.Answer) == 1 {
		if a, ok := m.Answer[0].(*dns.A); ok && a.A.Equal(address(last).Addr().AsSlice()) {
			return nil
		}
	}
	return fmt.Errorf("not the address of %s: %s", name(last), m)
}

// startIsthmus starts a service whose DNS listener is one app's, so that its view counts.
func (s *stage) startIsthmus(ctx context.Context) (*contender.Running, error) {
	store := s.path("isthmus.db")
	if err := writeStore(store, s.names); err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.New(s.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	service, err := box.Service(ctx, sandbox.ServiceOptions{
		Cluster: cluster,
		Store:   map[string]any{"embedded": map[string]any{"path": store}},
		Listen:  map[string]any{"dns": []any{map[string]any{"address": at, "as": asker.String()}}},
	})
	if err != nil {
		return nil, err
	}
	r := &contender.Running{Process: service.Process, Name: "isthmus", Port: port, Addr: at}
	return r, r.Await(ctx, s.answers)
}

const knotConfig = `
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
`

const nsdConfig = `
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
`

const corednsConfig = `
isthmus.internal:PORT {
    bind 127.0.0.1
    multisocket CORES
    file ZONE
}
`

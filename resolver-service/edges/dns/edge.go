package dns

import (
	"cmp"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/zone"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// Edge describes DNS that is answered at some endpoints, for names below a domain.
func Edge(at []Endpoint, settings *Settings, domain string) edge.Edge {
	e := endpoints{at, settings}
	listen := make([]edge.Listener, len(at))
	for i, l := range at {
		listen[i] = edge.Listener{Name: "dns", Address: l.Address}
	}
	return edge.Edge{
		Name:   "dns",
		Listen: listen,
		Claim:  edge.Claim{Key: "dns.maxTCP", Max: settings.MaxTCP, Default: defaultConnections},
		Check:  func(doc *strict.Document) { e.check(doc, catalog.Domain(domain)) },
		Open:   e.open,
		Build:  e.build,
	}
}

// defaultConnections are those that each listener takes by TCP and TLS.
const defaultConnections = 1_000

// endpoints are where DNS is answered, and how.
type endpoints struct {
	all []Endpoint
	*Settings
}

func (e endpoints) open(o edge.Opening) (edge.Sockets, error) {
	all := make([]Listen, len(e.all))
	for i, l := range e.all {
		as, _ := catalog.ParseApp(l.As) // was checked, or is nobody
		all[i] = Listen{Address: l.Address, As: as, TLS: l.TLS, RateLimit: e.rateLimit(l), MaxTCP: o.Connections, Sockets: o.Cores}
		if tcp, err := o.TakeOver(l.Address); err != nil {
			return nil, err
		} else if tcp != nil {
			all[i].TCP = tcp
		}
	}
	var files Files
	if t := e.TLS; t != nil {
		files = Files{Cert: t.Cert, Key: t.Key}
	}
	open, err := Open(all, files, o.Log)
	if err == nil {
		return open, nil
	}
	var refused *ListenError
	if !errors.As(err, &refused) {
		return nil, err
	}
	by := ""
	if p := refused.Protocol(); p != "" {
		by = " by " + strings.ToUpper(p)
	}
	return nil, edge.ListenError("dns", refused.Address+by, refused.Err, advice(refused.Address, refused.Err))
}

// advice is what to do about an address that can't be listened on, where port 53 has reasons
// of its own; empty where it has none.
func advice(address string, err error) string {
	_, port, _ := net.SplitHostPort(address)
	switch low := port == "53" || port == "853"; {
	case low && errors.Is(err, syscall.EADDRINUSE):
		return "another DNS server has that port, most often systemd-resolved: look with \"ss -lnup sport = :" + port +
			"\"; write an address of its own such as 127.0.0.2:" + port + ", or DNSStubListener=no in /etc/systemd/resolved.conf"
	case low && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)):
		return "ports below 1024 are for root: give the service the capability CAP_NET_BIND_SERVICE, or write a port above 1023 such as 7453"
	default:
		return ""
	}
}

func (e endpoints) build(host edge.Host) (edge.Part, error) {
	z, err := e.zone(zone.Config{
		Cluster: host.Cluster.Name, Domain: host.Cluster.Domain, Settled: host.Views.Settled,
		NSID: cmp.Or(e.NSID, host.Cluster.Replica, host.Cluster.Name), Version: strings.TrimSpace("Isthmus " + host.Cluster.Version),
	})
	if err != nil {
		return edge.Part{}, err
	}
	cfg := Config{Zone: z, Forward: e.upstreams()}
	if c := e.Cache; c != nil {
		if cfg.Cache = *c; *c == 0 {
			cfg.Cache = -1 // none
		}
	}
	server, err := New(cfg, host.Listen.Sockets.(*Listeners), host.Views.Topology, host.Tell.Metrics, host.Tell.Log)
	if err != nil {
		return edge.Part{}, err
	}
	return edge.Part{
		Run:    server.Run,
		Status: func(answer *v1alpha1.StatusResponse) { answer.Dns = server.Status() },
		Ready: func() (reasons, notes []string) {
			return nil, append(troubles(server.Status()), server.hosts.Troubles()...)
		},
		Trusted: server.Trusted, Resolver: server.resolver,
	}, nil
}

// troubles are what is wrong with how DNS is answered. What was known stands.
func troubles(status *v1alpha1.DNSStatus) (notes []string) {
	for _, u := range status.GetUpstreams() {
		if !u.GetUp() && u.GetError() != "" {
			notes = append(notes, "dns: forward to "+u.GetAddress()+": "+u.GetError())
		}
	}
	return notes
}

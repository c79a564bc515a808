package resolverservice

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"syscall"
)

// Defaults of the listeners' bounds.
const (
	defaultConnections          = 20_000 // of listen.resolver
	defaultConnectionsPerClient = 5_000
	defaultGatewayConnections   = 50_000
	defaultDNSConnections       = 1_000 // of each listener
	defaultConsulConnections    = 10_000

	maxHandshakes    = 2048 // of listen.resolver, at once
	adminConnections = 1024 // an eighth of the limit of descriptors where that is less
	debugConnections = 128
)

// descriptorsPerGatewayConnection: a client's and a backend's socket. Pipes between them are
// few, and where none is to be had bytes are copied, so the reserve has room for them.
const descriptorsPerGatewayConnection = 2

// bounds are how many connections each listener takes, so that all of them together leave a
// reserve of descriptors. The reserve is for the store, peers, checks and files, and for
// health pages, which must answer while everything else is full.
type bounds struct {
	resolver, resolverPerClient, handshakes int
	gateway, dns, consul                    int // each of the gateway's and DNS' listeners
	admin, debug                            int
}

// reserve is how many of the process's descriptors no listener gets.
func reserve(limit int) int { return min(max(limit/8, 64), 4096) }

// claim is what one kind of listener wants.
type claim struct {
	name   string
	key    string
	each   *int // connections of each listener
	copies int  // listeners
	cost   int  // descriptors of each connection
	said   bool // by the configuration
}

// fit fits the bounds into a limit of descriptors. Every kind of listener has the same share;
// what one doesn't want is for the others. It returns the names of those that got less.
func (c *Config) fit(limit int) (b bounds, reduced []claim) {
	b = bounds{
		resolver: cmp.Or(c.Resolver.MaxConnections, defaultConnections), gateway: cmp.Or(c.Gateway.MaxConnections, defaultGatewayConnections),
		dns: cmp.Or(c.DNS.MaxTCP, defaultDNSConnections), consul: cmp.Or(c.Consul.MaxConnections, defaultConsulConnections),
		admin: min(adminConnections, limit/8), debug: min(debugConnections, limit/64),
	}
	left := limit - reserve(limit)
	if c.Listen.Admin != "" {
		left -= b.admin
	}
	if c.Listen.Debug != "" {
		left -= b.debug
	}
	gateways := len(c.Listen.Apps) + count(c.Listen.Gateway)
	claims := []claim{
		{"resolver", "resolver.maxConnections", &b.resolver, count(c.Listen.Resolver), 1, c.Resolver.MaxConnections > 0},
		{"gateway", "gateway.maxConnections", &b.gateway, gateways, descriptorsPerGatewayConnection, c.Gateway.MaxConnections > 0},
		{"dns", "dns.maxTCP", &b.dns, len(c.Listen.DNS), 1, c.DNS.MaxTCP > 0},
		{"consul", "consul.maxConnections", &b.consul, count(c.Listen.Consul), 1, c.Consul.MaxConnections > 0},
	}
	claims = slices.DeleteFunc(claims, func(cl claim) bool { return cl.copies == 0 })
	slices.SortStableFunc(claims, func(x, y claim) int { return cmp.Compare(x.wants(), y.wants()) })
	for i, cl := range claims {
		share := max(left, 0) / (len(claims) - i)
		if cl.wants() > share {
			*cl.each = max(share/cl.cost/cl.copies, leastConnections)
			reduced = append(reduced, cl)
		}
		left -= cl.wants()
	}
	// However few there are, one client never has all, and neither have half-open ones.
	b.resolverPerClient = min(cmp.Or(c.Resolver.MaxConnectionsPerClient, defaultConnectionsPerClient), max(b.resolver/2, 1))
	if c.Resolver.MaxConnectionsPerClient > 0 && !slices.ContainsFunc(reduced, func(cl claim) bool { return cl.name == "resolver" }) {
		b.resolverPerClient = c.Resolver.MaxConnectionsPerClient
	}
	b.handshakes = min(maxHandshakes, max(b.resolver/2, 1))
	return b, reduced
}

// leastConnections is what each listener takes however low the limit is.
const leastConnections = 8

func (cl claim) wants() int { return *cl.each * cl.copies * cl.cost }

func count(address string) int {
	if address == "" {
		return 0
	}
	return 1
}

// openFiles is how many descriptors the process may have. Go has raised it to the hard limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// fitBounds decides how many connections each listener takes, and says so where it is less
// than wanted.
func (s *Service) fitBounds() {
	limit := openFiles()
	b, reduced := s.cfg.fit(limit)
	s.bounds = b
	if len(reduced) == 0 {
		return
	}
	level := slog.LevelInfo
	args := []any{"openFiles", limit, "reserve", reserve(limit)}
	for _, cl := range reduced {
		args = append(args, cl.key, *cl.each)
		if cl.said {
			level = slog.LevelWarn
		}
	}
	s.log.Log(context.Background(), level, "the limit of open files is too low for all connections that the listeners may have; "+
		"they take fewer; raise it with ulimit -n or LimitNOFILE", args...)
}

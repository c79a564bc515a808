package resolverservice

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/resolver-service/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
)

// requestGrace is how long a request for a page may take to come before its connection gives
// way to others. It comes in one packet.
const requestGrace = 100 * time.Millisecond

// boundListeners bounds what the resolver's, the admin and the debug listener take. The other
// listeners have bounds of their own.
func (s *Service) boundListeners() error {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "isthmus_connections_refused_total", Help: "Connections closed for want of room, by listener and reason.",
	}, []string{"listener", "reason"})
	open := &openConnections{of: map[string]*bounded.Listener{}}
	b := s.bounds
	for name, limits := range map[string]bounded.Bounds{
		"resolver": {Max: b.resolver, PerClient: b.resolverPerClient, Pending: b.handshakes, UserTimeout: stream.UserTimeout},
		// A connection that waits for a request gives way, so nobody keeps a probe out.
		"admin": {Max: b.admin, PerClient: max(b.admin/2, 1), Pending: b.admin, Grace: requestGrace, Wait: 5 * requestGrace},
		"debug": {Max: b.debug, PerClient: b.debug, Pending: b.debug, Grace: requestGrace, Wait: 50 * requestGrace},
	} {
		if s.listeners[name] == nil {
			continue
		}
		for _, r := range bounded.Reasons() {
			refused.WithLabelValues(name, string(r))
		}
		limits.Count = func(r bounded.Reason) { refused.WithLabelValues(name, string(r)).Inc() }
		open.of[name] = bounded.New(s.listeners[name], limits)
	}
	s.bounded = open.of
	if err := s.registry.Register(refused); err != nil {
		return err
	}
	return s.registry.Register(open)
}

// hangup closes the connection of a client of the resolver, by the address that gRPC has of it.
func (s *Service) hangup(client net.Addr) {
	if l := s.bounded["resolver"]; l != nil {
		l.Hangup(client)
	}
}

// openConnections counts the connections of bounded listeners when it is asked.
type openConnections struct{ of map[string]*bounded.Listener }

var (
	connectionsOpen    = prometheus.NewDesc("isthmus_connections_open", "Connections that are open, by listener.", []string{"listener"}, nil)
	connectionsPending = prometheus.NewDesc("isthmus_connections_pending", "Connections that are open and give way to new ones: their handshake is not finished, or they wait for a request.", []string{"listener"}, nil)
)

// Describe implements prometheus.Collector.
func (o *openConnections) Describe(to chan<- *prometheus.Desc) {
	to <- connectionsOpen
	to <- connectionsPending
}

// Collect implements prometheus.Collector.
func (o *openConnections) Collect(to chan<- prometheus.Metric) {
	for name, l := range o.of {
		open, pending := l.Len()
		to <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(open), name)
		to <- prometheus.MustNewConstMetric(connectionsPending, prometheus.GaugeValue, float64(pending), name)
	}
}

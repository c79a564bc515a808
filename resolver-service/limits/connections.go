// Package limits bounds the connections of the service's listeners, and counts them. Its folders
// have the bounds for one listener, for what clients make it keep, and for metrics by client.
package limits

import (
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Connections bounds what listeners take, and counts it. Edges that are not in it have bounds
// of their own.
type Connections struct {
	refused *prometheus.CounterVec
	open    *openConnections
}

// NewConnections makes a Connections that counts for a registry.
func NewConnections(to prometheus.Registerer) (*Connections, error) {
	c := &Connections{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_connections_refused_total", Help: "Connections closed for want of room, by listener and reason.",
		}, []string{"listener", "reason"}),
		open: &openConnections{of: map[string]*bounded.Listener{}},
	}
	if err := to.Register(c.refused); err != nil {
		return nil, err
	}
	return c, to.Register(c.open)
}

// Bound bounds a listener. It is called before anything is served.
func (c *Connections) Bound(name string, l net.Listener, limits bounded.Bounds) *bounded.Listener {
	for _, r := range bounded.Reasons() {
		c.refused.WithLabelValues(name, string(r))
	}
	limits.Count = func(r bounded.Reason) { c.refused.WithLabelValues(name, string(r)).Inc() }
	c.open.of[name] = bounded.New(l, limits)
	return c.open.of[name]
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

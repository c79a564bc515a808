package consulapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the API's own; docs/reference/service.md says what they mean.
type metrics struct {
	blocked  atomic.Int64
	requests *prometheus.CounterVec
	denied   *prometheus.CounterVec
	refused  prometheus.Counter // connections
}

// Why a request is denied.
const (
	unknownToken = "token"
	noPermission = "permission"
)

// newMetrics registers the server's metrics, unless to is nil.
func newMetrics(to prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_consul_requests_total", Help: "Requests of the Consul API, by family of endpoints and class of the answer.",
		}, []string{"family", "code"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_consul_denied_total", Help: "Requests of the Consul API that were denied, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isthmus_consul_connections_refused_total", Help: "Connections to the Consul API closed at once, for want of room.",
		}),
	}
	for _, reason := range []string{unknownToken, noPermission} {
		m.denied.WithLabelValues(reason)
	}
	if to == nil {
		return m, nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.denied, m.refused,
		gauge("isthmus_consul_queries_blocked", "Queries of the Consul API that wait for a change.", func() float64 { return float64(m.blocked.Load()) }),
		gauge("isthmus_consul_registrations", "Services registered by the Consul API.", func() float64 { return float64(s.Instances()) }),
	} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("consul: register metrics: %w", err)
		}
	}
	return m, nil
}

// answered counts a request. A code of 0 says that the client did not wait for the answer.
func (m *metrics) answered(path string, code int) {
	class := "none"
	if code != 0 {
		class = strconv.Itoa(code/100) + "xx"
	}
	m.requests.WithLabelValues(family(path), class).Inc()
}

// family is what the paths of like endpoints have in common. There are few, whatever is
// asked for.
func family(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok {
		switch name, _, _ := strings.Cut(rest, "/"); name {
		case "agent", "catalog", "health", "status":
			return name
		}
	}
	return "other"
}

// recorder knows the code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader writes the code.
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

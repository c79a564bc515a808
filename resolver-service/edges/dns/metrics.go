package dns

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// The counters; docs/reference/service.md describes them. All of it is read when somebody looks: a
// query costs what the transport and the zone count of it.
var (
	queries     = describe("queries_total", "Queries that came, by protocol.", "protocol")
	responses   = describe("responses_total", "Responses that were sent, by protocol.", "protocol")
	dropped     = describe("dropped_total", "Queries that got no response: no DNS, or it could not be sent.", "protocol")
	truncated   = describe("truncated_total", "Responses that were sent truncated.", "protocol")
	overload    = describe("overload_total", "Queries answered with SERVFAIL because too many were waited for.", "protocol")
	limited     = describe("limited_total", "Responses over the rate limit.", "sent")
	answers     = describe("answers_total", "Queries by how they ended: their response code, and why.", "rcode", "outcome")
	open        = describe("connections_open", "Connections open now.", "protocol")
	accepted    = describe("connections_accepted_total", "Connections accepted, those closed at once included.", "protocol")
	closed      = describe("connections_closed_total", "Connections closed for want of room.", "protocol", "which")
	forwarded   = describe("forward_queries_total", "Queries for other names, by how they were answered.", "answer")
	cacheSize   = describe("forward_cache_entries", "Answers of other servers that are kept.")
	cacheBytes  = describe("forward_cache_bytes", "What they take.")
	flights     = describe("forward_pending", "Questions that other servers are being asked.")
	hostsFailed = describe("gateway_hosts_failing", "Host names of gateways that can't be resolved now.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("isthmus_dns_"+name, help, labels, nil)
}

var protocols = [...]string{transport.UDP: "udp", transport.TCP: "tcp", transport.TLS: "tls"}

// Describe lists the server's metrics.
func (s *Server) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queries, responses, dropped, truncated, overload, limited, answers, open, accepted, closed, hostsFailed,
		forwarded, cacheSize, cacheBytes, flights,
	} {
		out <- d
	}
}

// Collect reads them.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	sum, conns := s.traffic()
	for p, name := range protocols {
		t := &sum[p]
		counter(queries, t.Queries, name)
		counter(responses, t.Responses, name)
		counter(dropped, t.Dropped, name)
		counter(truncated, t.Truncated, name)
		counter(overload, t.Overload, name)
		if p := transport.Protocol(p); p == transport.UDP {
			counter(limited, t.Slipped, "truncated")
			counter(limited, t.Limited-t.Slipped, "no")
			continue
		}
		c := &conns[p]
		gauge(open, int(c.Open), name)
		counter(accepted, c.Accepted, name)
		counter(closed, c.Evicted, name, "idle")
		counter(closed, c.Refused, name, "new")
	}
	for _, c := range s.zone.Counters() {
		counter(answers, c.Queries, c.RCode, c.Outcome)
	}
	gauge(hostsFailed, s.hosts.Failing())
	if s.forward == nil {
		return
	}
	f := s.forward.Counters()
	counter(forwarded, f.Hits, "cached")
	counter(forwarded, f.Misses, "asked")
	counter(forwarded, f.Joined, "asked together")
	counter(forwarded, f.Failures, "failed")
	gauge(cacheSize, f.Entries)
	gauge(cacheBytes, f.Bytes)
	gauge(flights, f.Flights)
}

// traffic adds the listeners up, by protocol.
func (s *Server) traffic() (sum [len(protocols)]transport.Traffic, conns [len(protocols)]transport.Counters) {
	for _, l := range s.listeners.all {
		c := l.Counters()
		for p := range sum {
			add(&sum[p], &c.Traffic[p])
		}
		stream := &conns[transport.TCP]
		if l.TLS {
			stream = &conns[transport.TLS]
		}
		stream.Open += c.Open
		stream.Accepted += c.Accepted
		stream.Evicted += c.Evicted
		stream.Refused += c.Refused
	}
	return sum, conns
}

func add(to, t *transport.Traffic) {
	to.Queries += t.Queries
	to.Responses += t.Responses
	to.Dropped += t.Dropped
	to.Limited += t.Limited
	to.Slipped += t.Slipped
	to.Truncated += t.Truncated
	to.Overload += t.Overload
}

package xds

import "github.com/prometheus/client_golang/prometheus"

// The counters; docs/reference/service.md describes them.
var (
	clientsOpen = describe("clients", "Streams that are open, by what the client is and its protocol.", "as", "protocol")
	namesIn     = describe("names", "Different names that clients follow.")
	hostsFailed = describe("gateway_hosts_failing", "Host names of gateways that can't be resolved now.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("isthmus_xds_"+name, help, labels, nil)
}

// counters are what streams count, by type of resources.
type counters struct{ responses, resources, rejections *prometheus.CounterVec }

func newCounters() counters {
	vec := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isthmus_xds_" + name, Help: help}, []string{"type"})
		for k := range kinds {
			v.WithLabelValues(k.short()) // which is 0 before the first
		}
		return v
	}
	return counters{
		vec("responses_total", "Responses that were sent."), vec("resources_total", "Resources in them, and names of those that are gone."),
		vec("rejections_total", "Responses that a client refused."),
	}
}

// Describe lists the server's metrics.
func (s *Server) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clientsOpen, namesIn, hostsFailed} {
		out <- d
	}
	for _, v := range []*prometheus.CounterVec{s.counters.responses, s.counters.resources, s.counters.rejections} {
		v.Describe(out)
	}
}

// Collect reads them.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	count := map[[2]string]int{}
	for _, as := range []string{"app", "gateway"} {
		for _, protocol := range []string{"delta", "sotw"} {
			count[[2]string{as, protocol}] = 0
		}
	}
	s.clients.each(func(who *client) {
		as, protocol := "app", "sotw"
		if who.gateway {
			as = "gateway"
		}
		if who.delta {
			protocol = "delta"
		}
		count[[2]string{as, protocol}]++
	})
	for labels, n := range count {
		gauge(clientsOpen, n, labels[:]...)
	}
	gauge(namesIn, int(s.hubs.names.Load()))
	gauge(hostsFailed, s.hosts.Failing())
	for _, v := range []*prometheus.CounterVec{s.counters.responses, s.counters.resources, s.counters.rejections} {
		v.Collect(out)
	}
}

package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Metrics are the service's own metrics, beside those that its parts register
// themselves. docs/reference/service.md says what each one means.
type Metrics struct {
	lookups *prometheus.CounterVec
	status  func() *v1alpha1.StatusResponse
	age     func() time.Duration
}

// Metric descriptions, by subject.
var (
	buildInfo     = describe("build_info", "Always 1; says which cluster and version this is.", "cluster", "version")
	revisionNow   = describe("revision", "Revision of the newest published state.")
	revisionAge   = describe("revision_age_seconds", "Time since the revision last changed.")
	apps          = describe("apps", "Apps of this cluster.")
	instances     = describe("instances", "Instances registered, by state.", "state")
	objects       = describe("objects", "Objects in use.")
	objectsBad    = describe("objects_refused", "Objects in the store that can't be used.")
	exports       = describe("exports", "Apps exported to other clusters.")
	identityReady = describe("identity_ready", "1 when there is a valid identity, or insecure was asked for.")
	storeReady    = describe("store_ready", "1 once the store's full set is in.", "store")
	storeFailing  = describe("store_failing_seconds", "For how long the store could not be read; 0 when it can.", "store")
	peerState     = describe("peer_state", "1 for the state that the link to a peer is in.", "peer", "state")
	peerLastWord  = describe("peer_last_word_seconds", "Time since the last word of a peer; absent before the first.", "peer")
	peerInfo      = describe("peer_info", "Always 1; says which version a peer's service is, as it said last.", "peer", "version")
	peerGateways  = describe("peer_gateways", "Gateways of a peer, by how this service finds them.", "peer", "state")
	peerExports   = describe("peer_exports", "Apps that a peer exports to this cluster.", "peer")
	peerLapses    = describe("peer_lapses_total", "How often the lease of a peer has run out since the service started.", "peer")
	peerTunnels   = describe("peer_tunnels", "Tunnels of a cluster of which one dials the other that are open.", "peer", "mode")
	peerStreams   = describe("peer_tunnel_streams", "Connections that they carry now.", "peer", "mode")
	peerUnreached = describe("peer_unreached_callers", "Sidecars that say that they don't reach a cluster which is heard or was.", "peer")
	certExpires   = describe("certificate_expires_timestamp_seconds", "When the first certificate of a use runs out, as Unix time.", "use", "peer")
	certsFailing  = describe("certificates_failing", "Certificates of a use that can't be used, or not be renewed: then the one before stands.", "use", "peer")
	sourceState   = describe("source_ready", "1 once the full set of a source of instances is in.", "source")
	sourceFailing = describe("source_failing_seconds", "For how long a source of instances could not be read; 0 when it can.", "source")
	sourceHas     = describe("source_instances", "Instances that a source has.", "source")
	sourceBad     = describe("source_refused", "What a source has and can't be used, or is not as it should be.", "source")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("isthmus_"+name, help, labels, nil)
}

// NewMetrics registers the service's metrics, and those of Go and of the process. age
// is the time since the revision last changed.
func NewMetrics(to prometheus.Registerer, status func() *v1alpha1.StatusResponse, age func() time.Duration) (*Metrics, error) {
	m := &Metrics{
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isthmus_lookups_total", Help: "Lookups that the service made for Resolve calls, by outcome.",
		}, []string{"outcome"}),
		status: status, age: age,
	}
	for _, o := range catalog.Outcomes() {
		m.lookups.WithLabelValues(o.String())
	}
	for _, c := range []prometheus.Collector{
		m, m.lookups, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Lookup counts one lookup.
func (m *Metrics) Lookup(outcome string) { m.lookups.WithLabelValues(outcome).Inc() }

// Describe lists the metrics that are made from the service's status.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, revisionNow, revisionAge, apps, instances, objects, objectsBad, exports,
		identityReady, storeReady, storeFailing, peerState, peerLastWord, peerInfo, peerGateways, peerExports,
		peerLapses, peerTunnels, peerStreams, peerUnreached, certExpires, certsFailing, sourceState, sourceFailing, sourceHas, sourceBad,
	} {
		out <- d
	}
}

// Collect makes them.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	s := m.status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(buildInfo, 1, s.GetCluster(), s.GetVersion())
	gauge(revisionNow, float64(s.GetRevision()))
	gauge(revisionAge, m.age().Seconds())
	gauge(apps, float64(s.GetApps()))
	gauge(instances, float64(s.GetInstances()-s.GetDraining()), "ready")
	gauge(instances, float64(s.GetDraining()), "draining")
	gauge(objects, float64(s.GetObjects()))
	gauge(objectsBad, float64(len(s.GetRefused())))
	gauge(exports, float64(s.GetExports()))
	gauge(identityReady, truth(s.GetIdentity() != ""))
	gauge(storeReady, truth(s.GetStore().GetReady()), s.GetStore().GetName())
	gauge(storeFailing, since(s.GetStore().GetFailingUnixMs()), s.GetStore().GetName())
	collectPeers(s.GetPeers(), gauge)
	for _, p := range s.GetPeers() {
		out <- prometheus.MustNewConstMetric(peerLapses, prometheus.CounterValue, float64(p.GetLapses()), p.GetCluster())
	}
	collectTrust(s.GetTrust(), gauge)
	for _, source := range s.GetSources() {
		gauge(sourceState, truth(source.GetReady()), source.GetName())
		gauge(sourceFailing, since(source.GetFailingUnixMs()), source.GetName())
		gauge(sourceHas, float64(source.GetInstances()), source.GetName())
		gauge(sourceBad, float64(max(len(source.GetRefused()), int(source.GetRefusedCount()))), source.GetName())
	}
}

// collectTrust tells of each use the certificate that runs out first, and how many fail.
func collectTrust(all []*v1alpha1.TrustStatus, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	type use struct{ name, peer string }
	first, failing := map[use]int64{}, map[use]int{}
	for _, t := range all {
		failing[use{t.GetUse(), t.GetCluster()}] += int(truth(t.GetError() != ""))
		u, ends := use{t.GetUse(), t.GetCluster()}, t.GetNotAfterUnixMs()
		if before, ok := first[u]; ends != 0 && (!ok || ends < before) {
			first[u] = ends
		}
	}
	for u, ends := range first {
		gauge(certExpires, float64(ends)/1000, u.name, u.peer)
	}
	for u, n := range failing {
		gauge(certsFailing, float64(n), u.name, u.peer)
	}
}

// collectPeers tells of each peer. Of one at rest it tells that alone: there may be a thousand of them.
func collectPeers(peers []*v1alpha1.PeerStatus, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	for _, p := range peers {
		if p.GetState() == catalog.PeerResting && p.GetTunnel() == nil {
			gauge(peerState, 1, p.GetCluster(), catalog.PeerResting)
			continue
		}
		for _, state := range []string{"connected", "connecting", "stale", "damped", catalog.GuestAway, catalog.PeerResting} {
			gauge(peerState, truth(p.GetState() == state), p.GetCluster(), state)
		}
		if p.GetLastWordUnixMs() != 0 {
			gauge(peerLastWord, since(p.GetLastWordUnixMs()), p.GetCluster())
		}
		if p.GetVersion() != "" {
			gauge(peerInfo, 1, p.GetCluster(), p.GetVersion())
		}
		gateways := map[string]int{}
		for _, g := range p.GetGateways() {
			gateways[g.GetState()]++
		}
		for _, state := range []string{"connected", "connecting", "refused", "silent"} {
			gauge(peerGateways, float64(gateways[state]), p.GetCluster(), state)
		}
		gauge(peerExports, float64(p.GetExports()), p.GetCluster())
		gauge(peerUnreached, float64(p.GetUnreachedBy()), p.GetCluster())
		if t := p.GetTunnel(); t != nil {
			gauge(peerTunnels, float64(t.GetOpen()), p.GetCluster(), t.GetMode())
			gauge(peerStreams, float64(t.GetStreams()), p.GetCluster(), t.GetMode())
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// since is the time from a moment to now; 0 for no moment.
func since(unixMs int64) float64 {
	if unixMs == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(unixMs)).Seconds())
}

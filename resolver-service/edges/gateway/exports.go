package gateway

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/series"
)

// maxExports is how many exported apps have series of their own.
const maxExports = 200

// trafficByExport counts connections and bytes by the app that they are for. It is a [prometheus.Collector].
type trafficByExport struct {
	table *live.Value[*catalog.GatewayTable]
	all   series.Bounded[catalog.App, exportTraffic]
}

// exportTraffic is that of one app, or of all that there is no room for.
type exportTraffic struct {
	relay.Traffic
	open, connections atomic.Int64
}

func newTrafficByExport(table *live.Value[*catalog.GatewayTable]) *trafficByExport {
	e := &trafficByExport{table: table}
	e.all.Most = maxExports
	return e
}

// join counts a connection to an app in, once, whatever instance it gets.
func (e *trafficByExport) join(a *admitted, app catalog.App) {
	if a.traffic != nil {
		return
	}
	a.app = app
	e.all.Use(app, func(t *exportTraffic) {
		a.traffic = t.join()
	})
}

// join counts a connection in, and returns t.
func (t *exportTraffic) join() *exportTraffic {
	t.open.Add(1)
	t.connections.Add(1)
	return t
}

// leave counts a connection out, which may never have had an app.
func (t *exportTraffic) leave() {
	if t != nil {
		t.open.Add(-1)
	}
}

// forget removes the apps that are exported no more, once their last connection has ended.
func (e *trafficByExport) forget() {
	table, ok := e.table.Load()
	if !ok || table == nil {
		return
	}
	e.all.Remove(func(app catalog.App, t *exportTraffic) bool {
		_, exported := table.Backends.Get(app)
		return !exported && t.open.Load() == 0
	}, func(other, from *exportTraffic) {
		other.connections.Add(from.connections.Load())
		other.ToBackend.Add(from.ToBackend.Load())
		other.ToClient.Add(from.ToClient.Load())
	})
}

func toBackend(t *relay.Traffic) *atomic.Uint64 { return &t.ToBackend }
func toClient(t *relay.Traffic) *atomic.Uint64  { return &t.ToClient }

// sum is the bytes of one direction, of all apps.
func (e *trafficByExport) sum(of func(*relay.Traffic) *atomic.Uint64) (n uint64) {
	e.all.Each(func(_ catalog.App, _ bool, t *exportTraffic) { n += of(&t.Traffic).Load() })
	return n
}

func exportDesc(name, help string, labels ...string) *prometheus.Desc {
	o := named("export_"+name, help)
	return prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name), o.Help, append([]string{"namespace", "app"}, labels...), nil)
}

var (
	exportOpen        = exportDesc("connections_open", "Connections open now to an exported app.")
	exportConnections = exportDesc("connections_total", "Connections for an exported app, those included whose instances could not be reached.")
	exportBytes       = exportDesc("bytes_total", "Bytes passed on for an exported app, after the first flight of a connection.", "direction")
)

// Describe implements [prometheus.Collector].
func (e *trafficByExport) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{exportOpen, exportConnections, exportBytes} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (e *trafficByExport) Collect(to chan<- prometheus.Metric) {
	e.forget()
	e.all.Each(func(app catalog.App, other bool, t *exportTraffic) {
		if other {
			if app.ID = "other"; t.connections.Load() == 0 {
				return
			}
		}
		metric := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, kind, v, append([]string{app.Namespace, app.ID}, labels...)...)
		}
		metric(exportOpen, prometheus.GaugeValue, float64(t.open.Load()))
		metric(exportConnections, prometheus.CounterValue, float64(t.connections.Load()))
		metric(exportBytes, prometheus.CounterValue, float64(t.ToBackend.Load()), "to_backend")
		metric(exportBytes, prometheus.CounterValue, float64(t.ToClient.Load()), "to_client")
	})
}

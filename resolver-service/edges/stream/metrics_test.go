package stream_test

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// metric is the series of a metric with a value of a label, or nil.
func (s *service) metric(t *testing.T, name, label, value string) *dto.Metric {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m
				}
			}
		}
	}
	return nil
}

func TestTheTimeFromAChangeToItsSidecar(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	c := s.dial().send(helloOf(checkout, ""))
	c.recv()
	delivered := func(cause topology.Cause) uint64 {
		return s.metric(t, "isthmus_stream_delivery_seconds", "change", string(cause)).GetHistogram().GetSampleCount()
	}
	if n := delivered(topology.ByObject); n != 0 {
		t.Fatalf("%d for a first view, which nobody has waited for since a change", n)
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection(checkout, orders, ledger)}}})
	c.recv()
	other := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	other.recv()
	c.recv()
	for end := time.Now().Add(patience); delivered(topology.ByObject) != 1 || delivered(topology.ByInstance) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d by objects and %d by instances, want one each", delivered(topology.ByObject), delivered(topology.ByInstance))
		}
	}
	sum := s.metric(t, "isthmus_stream_delivery_seconds", "change", "object").GetHistogram().GetSampleSum()
	if sum <= 0 || sum > patience.Seconds() {
		t.Errorf("it took %v s", sum)
	}
}

func TestSidecarsAreCountedByVersion(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0")
	for range 2 {
		hello := helloOf(checkout, "")
		hello.GetHello().Version, hello.GetHello().Runtime = "v1.2.3", "daprd 1.18.2"
		s.dial().send(hello).recv()
	}
	if n := s.metric(t, "isthmus_stream_sidecars", "version", "v1.2.3").GetGauge().GetValue(); n != 2 {
		t.Errorf("%v sidecars", n)
	}
}

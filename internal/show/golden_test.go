package show

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files of testdata/golden")

// noon is when everything in these tests is looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return noon.Add(-d).UnixMilli() }

// largeStatus is that of a service with 50 peers, 6 of which are not well.
func largeStatus() *v1alpha1.StatusResponse {
	s := &v1alpha1.StatusResponse{
		Cluster: "west", Replica: "west-0", Version: "v0.9.0", Domain: "isthmus.internal", Revision: 128_345, StartedUnixMs: ago(75 * time.Hour),
		Identity: "spiffe://west.example/ns/isthmus-system/isthmus-west",
		Store:    &v1alpha1.StoreStatus{Name: "embedded", Path: "/var/lib/isthmus/production/isthmus.db", Ready: true, Version: "128345-5f3a"},
		Apps:     1000, Exports: 1000, Instances: 3000, Draining: 3, Streams: 3000, Objects: 2250,
		Refused: []*v1alpha1.RefusedObject{{Source: "shop.yaml:12", Error: `shop.yaml:12:5: spec.endpoints[0].ap: unknown field; did you mean "app"?`}},
		Sources: []*v1alpha1.SourceStatus{
			{Name: "stream", Ready: true, Instances: 2900},
			{Name: "consul", Ready: true, Instances: 100, Error: "get http://127.0.0.1:8500/v1/catalog/services: connection refused", FailingUnixMs: ago(12 * time.Second)},
		},
		Dns: &v1alpha1.DNSStatus{Listeners: []*v1alpha1.DNSListener{{Address: "127.0.0.1:7453", Protocols: []string{"udp", "tcp"}}}},
	}
	for i := range 50 {
		gateway := func(n int) string { return fmt.Sprintf("203.0.113.%d:15443", 2*i+n) }
		hour := ago(time.Hour)
		p := &v1alpha1.PeerStatus{
			Cluster: fmt.Sprintf("peer-%d", i+1), State: "connected", SinceUnixMs: ago(75 * time.Hour), LastWordUnixMs: ago(300 * time.Millisecond),
			Exports: 1000, Ready: 990, LeaseLeftMs: 9700, StaleAfterMs: 10_000, Hears: "connected", AskedBy: 2,
			Gateways: []*v1alpha1.GatewayStatus{{Address: gateway(1), State: "connected", SinceUnixMs: hour}, {Address: gateway(2), State: "connected", SinceUnixMs: hour}},
		}
		switch {
		case i%10 == 9:
			p.State, p.SinceUnixMs, p.LastWordUnixMs, p.LeaseLeftMs, p.Hears = "stale", ago(90*time.Second), ago(100*time.Second), 0, "stale"
			p.Lapses, p.RecentLapses = 3, []*v1alpha1.Lapse{{AtUnixMs: ago(90 * time.Second)}}
			p.Gateways[0].State, p.Gateways[1].State = "refused", "silent"
			p.Error = "dial tcp " + gateway(1) + ": connect: connection refused; start the gateway there, or correct spec.gateways"
		case i == 3:
			p.State, p.LastWordUnixMs, p.LeaseLeftMs, p.Hears, p.Exports, p.Ready = "connecting", 0, 0, "", 0, 0
			p.Error = "tls: unrecognized name; that gateway has no resolver service, or another domain; correct spec.gateways, or make domain the same in isthmus.yaml of both"
		case i == 1:
			p.UnreachedBy, p.Callers, p.UnreachedSinceUnixMs, p.UnreachedWhy = 3, 40, ago(20*time.Second), "no answer within 3s"
		case i == 20:
			p.Hears = ""
		}
		s.Peers = append(s.Peers, p)
	}
	return s
}

func largeApps() (all []*v1alpha1.AppState) {
	for i := range 1000 {
		m := &v1alpha1.AppState{
			App: &v1alpha1.App{Namespace: fmt.Sprintf("team-%d", i/50), Id: fmt.Sprintf("orders-service-%d", i)}, Ready: uint32(i % 4), Callers: uint32(i % 17), Selection: i%3 == 0,
			Instances: []*v1alpha1.InstanceState{{Source: "stream", Id: "a", Address: fmt.Sprintf("10.0.%d.%d:50002", i/250, i%250)}},
		}
		if i%7 == 0 {
			m.ExportedTo = []string{"peer-1", "peer-2", "peer-10"}
			m.Imports = []*v1alpha1.ExportState{{Cluster: "peer-1", Ready: 12}, {Cluster: "peer-2", Ready: 3, Stale: true}, {Cluster: "peer-10", Ready: 7}}
		}
		if i%90 == 0 {
			m.Draining = 1
		}
		all = append(all, m)
	}
	return all
}

func largeSidecars() (all []*v1alpha1.SidecarState) {
	for i := range 1000 {
		m := &v1alpha1.SidecarState{
			App: &v1alpha1.App{Namespace: fmt.Sprintf("team-%d", i/50), Id: fmt.Sprintf("orders-service-%d", i)}, Instance: "a", State: "ready",
			Address: fmt.Sprintf("10.0.%d.%d:50002", i/250, i%250), Source: "10.0.0.1", Zone: "eu-west-1a", SinceUnixMs: ago(time.Duration(i) * time.Minute),
			Version: "v0.9.0", Runtime: "daprd 1.18.2", Identity: "spiffe://public/ns/team/orders", Revision: 128_345, NewestRevision: 128_345, Delivered: true,
		}
		switch i % 100 {
		case 7:
			m.State, m.Address = "waiting", ""
		case 8:
			m.Revision, m.PlainText = 128_001, true
		}
		all = append(all, m)
	}
	return all
}

// largeDecision is one with a route to each of 50 clusters.
func largeDecision() *v1alpha1.Decision {
	m := &v1alpha1.Decision{
		Outcome: "ok", Address: "orders.shop.peer-1.isthmus.internal:15443", Cluster: "peer-1", Gateway: "203.0.113.1:15443", Revision: 128_345,
		Rule: "AppEndpoints shop/checkout, spec.endpoints[0] (shop.yaml:6)", Reason: "peer-1 has 12 ready; west has no ready instance of shop/orders",
		Notes: []string{"no sidecar of shop/checkout is connected here: this is what one would get; see that its Configuration names isthmus and this service"},
	}
	for i := range 50 {
		m.Routes = append(m.Routes, &v1alpha1.RouteDecision{
			Cluster: fmt.Sprintf("peer-%d", i+1), Priority: uint32(i / 10), Weight: 10, Ready: 12, Shards: 4, Share: 10, Taken: true, Ramp: uint32(i%4) * 25,
			Zones: "eu-west-1a: 6, eu-west-1b: 6", Reason: "12 ready; not called without a gateway: 10.0.0.1:50002 (outside the network ranges)",
			Peer: "heard 0.3 s ago, lease 9.7 s left; it does not hear this cluster (its link is stale)",
		})
	}
	return m
}

func largeEvents(w io.Writer) error {
	for i := range 1000 {
		e := &v1alpha1.Event{
			Number: uint64(i), LastUnixMs: ago(time.Duration(1000-i) * time.Second), Count: uint32(i%3 + 1), Level: "INFO", Message: "sidecar connected",
			Fields: []*v1alpha1.EventField{{Name: "cluster", Value: "west"}, {Name: "app", Value: fmt.Sprintf("team-%d/orders-service-%d", i/50, i)}, {Name: "address", Value: "10.0.0.1:50002"}, {Name: "identity", Value: "spiffe://public/ns/team/orders"}},
		}
		if i%50 == 0 {
			e.Level, e.Message = "WARN", "the lease of a peer has run out; its routes are withdrawn until it answers again"
			e.Fields = append(e.Fields, &v1alpha1.EventField{Name: "err", Value: "dial tcp 203.0.113.1:15443: connect: connection refused"})
		}
		if err := EventLine(w, e, time.UTC); err != nil {
			return err
		}
	}
	return nil
}

func largeAnalysis() *v1alpha1.AnalyzeResponse {
	m := &v1alpha1.AnalyzeResponse{Objects: 1000, LeftOut: 12}
	for i := range 50 {
		m.Findings = append(m.Findings, &v1alpha1.Finding{
			Check: "unknown-app", Level: "warning", Source: fmt.Sprintf("objects/team-%d.yaml:%d", i, i), Path: "spec.endpoints[0].app",
			Key:  &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: fmt.Sprintf("team-%d", i), Name: "checkout"},
			What: "no app shop/oders runs here, and no other cluster exports one", Fix: "did you mean shop/orders?",
		})
	}
	Analyzed(m, nil)
	return m
}

// TestGolden compares what people see, on screens of 80 and 120 columns, with testdata/golden.
func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"status":           func(w io.Writer) error { return Status(w, largeStatus(), false, noon) },
		"status-unhealthy": func(w io.Writer) error { Summary(w, largeStatus(), noon); return nil },
		"status-peer":      func(w io.Writer) error { return Peer(w, largeStatus(), "peer-10", noon) },
		"apps":             func(w io.Writer) error { return Apps(w, largeApps(), 199_980, false) },
		"sidecars":         func(w io.Writer) error { return Sidecars(w, largeSidecars(), noon) },
		"explain":          func(w io.Writer) error { return Explain(w, "shop/checkout", "shop/orders", largeDecision()) },
		"events":           largeEvents,
		"analyze":          func(w io.Writer) error { Analysis(w, largeAnalysis()); return nil },
	} {
		for _, columns := range []int{80, 120} {
			var got bytes.Buffer
			if err := write(&Screen{Writer: &got, Columns: columns}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(got.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s: %d of %d columns: %s", name, n, columns, line)
				}
			}
			golden(t, fmt.Sprintf("%s-%d.txt", name, columns), got.Bytes())
		}
	}
}

// sample fills a message: texts are the names of their fields, numbers are their numbers.
func sample(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		var v protoreflect.Value
		switch f.Kind() {
		case protoreflect.MessageKind:
			if f.IsList() {
				v = m.Mutable(f).List().NewElement()
			} else {
				v = m.NewField(f)
			}
			sample(v.Message())
		case protoreflect.StringKind:
			v = protoreflect.ValueOfString(string(f.Name()))
		case protoreflect.BytesKind:
			v = protoreflect.ValueOfBytes([]byte(`{"kind": "Cluster", "metadata": {"name": "east"}}`))
		case protoreflect.BoolKind:
			v = protoreflect.ValueOfBool(true)
		case protoreflect.DoubleKind:
			v = protoreflect.ValueOfFloat64(12.5)
		case protoreflect.Uint32Kind:
			v = protoreflect.ValueOfUint32(uint32(f.Number()))
		case protoreflect.Uint64Kind:
			v = protoreflect.ValueOfUint64(1<<53 + 2*uint64(f.Number()))
		case protoreflect.Int64Kind:
			v = protoreflect.ValueOfInt64(ago(time.Duration(f.Number()) * time.Minute))
		default:
			panic(f.FullName())
		}
		if f.IsList() {
			m.Mutable(f).List().Append(v)
		} else {
			m.Set(f, v)
		}
	}
}

// TestEachAnswerIsPrintedAsBefore compares each kind of answer with testdata/golden, for programs and for people.
func TestEachAnswerIsPrintedAsBefore(t *testing.T) {
	type answer = proto.Message
	texts := map[string]func(io.Writer, answer) error{
		"AppList": func(w io.Writer, m answer) error {
			return Apps(w, []*v1alpha1.AppState{m.(*v1alpha1.AppState)}, 0, true)
		},
		"SidecarList": func(w io.Writer, m answer) error {
			return Sidecars(w, []*v1alpha1.SidecarState{m.(*v1alpha1.SidecarState)}, noon)
		},
		"EventList": func(w io.Writer, m answer) error { return EventLine(w, m.(*v1alpha1.Event), time.UTC) },
		"CallList":  func(w io.Writer, m answer) error { return Calls(w, []*v1alpha1.Call{m.(*v1alpha1.Call)}, noon) },
		"Traffic":   func(w io.Writer, m answer) error { return Traffic(w, m.(*v1alpha1.TrafficResponse), ByEdge, 0) },
		"Tap":       func(w io.Writer, m answer) error { return Tap(w, m.(*v1alpha1.TapResponse), time.UTC) },
		"Graph":     func(w io.Writer, m answer) error { return GraphTable(w, m.(*v1alpha1.GraphResponse)) },
		"Diagnosis": func(w io.Writer, m answer) error { return Diagnose(w, m.(*v1alpha1.CheckResponse), true) },
		"Decision": func(w io.Writer, m answer) error {
			return Explain(w, "shop/web", "shop/orders", m.(*v1alpha1.Decision))
		},
		"Change":   func(w io.Writer, m answer) error { return Apply(w, m.(*v1alpha1.ApplyResponse)) },
		"Analysis": func(w io.Writer, m answer) error { Analysis(w, m.(*v1alpha1.AnalyzeResponse)); return nil },
		"VersionList": func(w io.Writer, m answer) error {
			return HistoryDiffs(w, []*v1alpha1.PastObject{m.(*v1alpha1.PastObject)}, false)
		},
		"CertificateList": func(w io.Writer, m answer) error {
			return Trust(w, "west", []*v1alpha1.TrustStatus{m.(*v1alpha1.TrustStatus)}, noon)
		},
		"Links":      func(w io.Writer, m answer) error { return LinkTables(w, m.(*v1alpha1.InvitationsResponse), noon) },
		"StoreCheck": func(w io.Writer, m answer) error { return Check(w, m.(*v1alpha1.StoreCheck)) },
		"StoreCopy":  func(w io.Writer, m answer) error { return Copy(w, m.(*v1alpha1.StoreCopy)) },
		"Status": func(w io.Writer, m answer) error {
			s := m.(*v1alpha1.StatusResponse)
			s.Store.Error = "" // since when is by the clock of the machine
			return Status(w, s, true, noon)
		},
	}
	for _, p := range printedKinds {
		m := proto.Clone(p.message)
		sample(m.ProtoReflect())
		var json, text bytes.Buffer
		print := func() error { return Print(&json, JSON, p.kind, m) }
		if strings.HasSuffix(p.kind, "List") {
			print = func() error { return PrintList(&json, JSON, p.kind, []answer{m}) }
		}
		if err := print(); err != nil {
			t.Fatal(err)
		}
		golden(t, p.kind+".json", json.Bytes())
		if write := texts[p.kind]; write != nil {
			if err := write(&text, m); err != nil {
				t.Fatal(err)
			}
			golden(t, p.kind+".txt", text.Bytes())
		}
	}
}

// golden compares a text with a file of testdata/golden.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what is shown (%v): look at it, then run go test ./internal/show -update", file, err)
	}
}

func TestASummaryIsRedOrGreen(t *testing.T) {
	for want, s := range map[string]*v1alpha1.StatusResponse{
		red + "UNHEALTHY\x1b[0m   PEERS 44 of 50 connected   ":   largeStatus(),
		green + "HEALTHY\x1b[0m   PEERS none   STORE ready   SO": {Store: &v1alpha1.StoreStatus{Ready: true}},
	} {
		var b bytes.Buffer
		if Summary(&Screen{Writer: &b, Colours: true}, s, noon); !strings.HasPrefix(b.String(), want) {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	}
}

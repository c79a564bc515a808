package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

func TestCanonicalYAML(t *testing.T) {
	var got []byte
	for _, obj := range designObjects() {
		got = append(append(got, EncodeYAML(obj)...), "---\n"...)
	}
	want := `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders
  - app: ledger
    namespace: finance
    routes:
    - {cluster: local}
    - {cluster: east, priority: 1, weight: 90}
    - {cluster: north, priority: 1, weight: 10}
    whenStale: serve
---
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec:
  gateways:
  - {address: "203.0.113.7:15443"}
  - {address: "gw.east.example:15443"}
  network: net-1
  staleAfter: "30s"
  rampUp: "5s"
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: orders}
spec:
  allow:
  - {cluster: west, namespace: shop, app: checkout}
  - {cluster: "*", namespace: shop}
---
apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: shop, name: orders-vm1}
spec:
  app: orders
  address: "10.0.0.5:50002"
  check:
    http: {port: 3500}
    interval: "5s"
---
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// anyObject makes an object of every shape, with names that YAML could mistake for
// something else.
func anyObject(r *rand.Rand) catalog.Object {
	names := []string{"a", "orders", "null", "true", "no", "y", "on", "1", "007", "1e3", "0x1f", "2020-01-01", "1-1", "nan", "a-b-c", "0"}
	pick := func() string { return names[r.IntN(len(names))] }
	app := catalog.App{Namespace: pick(), ID: pick()}
	switch r.IntN(4) {
	case 2:
		return anyInstance(r, app)
	case 0:
		e := &catalog.AppExport{App: app, Source: catalog.Source{Line: 1}}
		for range r.IntN(4) {
			a := catalog.Allow{Cluster: []string{"", "*", pick()}[r.IntN(3)], Namespace: []string{"", "*", pick()}[r.IntN(3)], App: []string{"", "*", pick()}[r.IntN(3)]}
			if a == (catalog.Allow{}) {
				a.Cluster = "*" // nothing at all is refused
			}
			e.Allow = append(e.Allow, a)
		}
		return e
	case 1:
		c := &catalog.Cluster{Name: pick(), Network: pick(), StaleAfter: time.Duration(1+r.IntN(100)) * time.Second, RampUp: time.Duration(r.IntN(12)) * time.Second, Source: catalog.Source{Line: 1}}
		for i := range r.IntN(3) {
			c.NetworkRanges = append(c.NetworkRanges, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}[i])
		}
		for i := range r.IntN(4) {
			c.Gateways = append(c.Gateways, fmt.Sprintf("[2001:db8::%d]:15443", i+1))
		}
		for i := range min(len(c.Gateways), r.IntN(3)) {
			c.AppGateways = append(c.AppGateways, catalog.AppGateway{App: catalog.App{Namespace: pick(), ID: fmt.Sprintf("x%d", i%2)}, Address: fmt.Sprintf("[2001:db8::1:%d]:50002", i+1)})
		}
		if c.Tunnel = []string{"", catalog.TunnelDial}[r.IntN(2)]; len(c.Gateways) == 0 {
			c.Tunnel = []string{"", catalog.TunnelAccept}[r.IntN(2)]
		}
		c.Trust.Domain = []string{"", "east.example", "null", "1"}[r.IntN(4)]
		c.Trust.Roots = []string{"", apitest.EastRoot, apitest.EastRoot + apitest.NorthRoot}[r.IntN(3)]
		return c
	}
	s := &catalog.AppEndpoints{App: app, Source: catalog.Source{Line: 1}}
	for i := range r.IntN(6) {
		e := catalog.Endpoint{App: catalog.App{Namespace: pick(), ID: fmt.Sprintf("x%d", i)}, WhenStale: catalog.WhenStale(r.IntN(2))}
		for j := range r.IntN(4) {
			e.Routes = append(e.Routes, catalog.RouteSpec{Cluster: fmt.Sprint(j), Priority: uint32(r.IntN(3)), Weight: uint32(1 + r.IntN(3)), Versions: []catalog.Versions{"", "2.*", "1.0,yes"}[r.IntN(3)]})
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func anyInstance(r *rand.Rand, app catalog.App) *catalog.AppInstance {
	i := &catalog.AppInstance{
		Namespace: app.Namespace, Name: app.ID, App: "a", Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(1+r.IntN(3))),
		Zone: []string{"", "no", "a: b # c", "Köln", "-----BEGIN x", "-----BEGIN "}[r.IntN(6)], Source: catalog.Source{Line: 1},
	}
	if r.IntN(4) == 0 {
		return i
	}
	c := &catalog.HealthCheck{
		Kind: catalog.CheckKind(r.IntN(3)), Port: uint16(1 + r.IntN(3)), Interval: time.Duration(1+r.IntN(40)) * 100 * time.Millisecond,
		HealthyAfter: 1 + r.IntN(3), UnhealthyAfter: 1 + r.IntN(3),
	}
	c.Timeout = c.Interval / time.Duration(1+r.IntN(3))
	switch c.Kind {
	case catalog.CheckHTTP:
		c.Path, c.Host, c.TLS = []string{DefaultPath, "/"}[r.IntN(2)], []string{"", "h"}[r.IntN(2)], r.IntN(2) == 0
	case catalog.CheckGRPC:
		c.Service, c.TLS = []string{"", "s.S", "true"}[r.IntN(3)], r.IntN(2) == 0
	}
	i.Check = c
	return i
}

func TestWhatIsWrittenReadsTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		obj := anyObject(r)
		text := EncodeYAML(obj)
		fromYAML, errs := DecodeYAML("", text)
		if len(errs) > 0 || len(fromYAML) != 1 {
			t.Fatalf("%v\n%s", errs, text)
		}
		fromJSON, err := DecodeJSON(KeyPath(obj.Key()), EncodeJSON(obj))
		if err != nil {
			t.Fatal(err)
		}
		// The lines that were counted are those of the text that was read.
		if !reflect.DeepEqual(fromYAML[0], fromJSON) {
			t.Fatalf("YAML gives %+v\nJSON gives %+v\nfor\n%s", fromYAML[0], fromJSON, text)
		}
		if s, ok := obj.(*catalog.AppEndpoints); ok {
			canonicalLines(s)
		}
		if !reflect.DeepEqual(obj, fromJSON) {
			t.Fatalf("read %+v, want %+v", fromJSON, obj)
		}
	}
}

// TestEveryStringIsTheSameToReaders of YAML and of JSON, whatever is in it.
func TestEveryStringIsTheSameToReaders(t *testing.T) {
	const together = 256
	for first := rune(0); first <= unicode.MaxRune; first += together {
		var all []rune
		for c := first; c < first+together; c++ {
			all = append(all, c) // what is half of a pair becomes U+FFFD
		}
		for _, s := range []string{string(all), string(all[:1])} {
			var fromYAML, fromJSON string
			quoted := appendQuoted(nil, s)
			if err := yaml.Unmarshal(quoted, &fromYAML); err != nil || fromYAML != s {
				t.Fatalf("from U+%04X: YAML reads %q, %v, want %q", first, fromYAML, err, s)
			}
			if err := json.Unmarshal(quoted, &fromJSON); err != nil || fromJSON != s {
				t.Fatalf("from U+%04X: JSON reads %q, %v, want %q", first, fromJSON, err, s)
			}
		}
	}
	cluster := &catalog.Cluster{Name: "east", Network: "a"}
	for _, revision := range []string{"\x7f", "a\u0085b", "\u2028", "\ufeff", "\uffff"} { // which is the store's
		if read, errs := DecodeManifests("f", EncodeYAMLAt(cluster, revision)); len(errs) > 0 || len(read) != 1 || read[0].Revision != revision {
			t.Errorf("revision %q is read as %+v, %v", revision, read, errs)
		}
	}
}

func TestEndpointLinesAreThoseOfTheCanonicalYAML(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		s, ok := anyObject(r).(*catalog.AppEndpoints)
		if !ok {
			continue
		}
		obj, err := DecodeJSON(KeyPath(s.Key()), EncodeJSON(s))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(EncodeYAML(s)), "\n")
		for _, e := range obj.(*catalog.AppEndpoints).Endpoints {
			if got := lines[e.Line-1]; got != "  - app: "+e.App.ID {
				t.Fatalf("line %d is %q, want the beginning of %s", e.Line, got, e.App)
			}
		}
	}
}

func TestOurJSONIsTheProtobufMapping(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		obj := anyObject(r)
		want := ToProto(obj)
		got := newMessage(obj.Key().Kind)
		if err := (protojson.UnmarshalOptions{}).Unmarshal(EncodeJSON(obj), got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("protojson reads %v (%v), want %v", got, err, want)
		}
		text, err := protojson.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeJSON(KeyPath(obj.Key()), text); err != nil {
			t.Fatalf("what protojson writes is refused: %v\n%s", err, text)
		}
	}
}

func TestCanonicalYAMLIsTheSameToOtherReaders(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		obj := anyObject(r)
		var fromYAML, fromJSON map[string]any
		if err := yaml.Unmarshal(EncodeYAML(obj), &fromYAML); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(EncodeJSON(obj), &fromJSON); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(fromYAML, fromJSON) {
			t.Fatalf("%v\n%v\n%s", fromYAML, fromJSON, EncodeYAML(obj))
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		key  catalog.Key
		path string
	}{
		{catalog.Key{Kind: "AppEndpoints", Namespace: "shop", Name: "checkout"}, "isthmus/v1alpha1/AppEndpoints/shop/checkout"},
		{catalog.Key{Kind: "AppExport", Namespace: "0-9", Name: "a-z"}, "isthmus/v1alpha1/AppExport/0-9/a-z"},
		{catalog.Key{Kind: "AppInstance", Namespace: "shop", Name: "orders-vm1"}, "isthmus/v1alpha1/AppInstance/shop/orders-vm1"},
		{catalog.Key{Kind: "Cluster", Name: "east"}, "isthmus/v1alpha1/Cluster/east"},
	} {
		if got := KeyPath(c.key); got != c.path {
			t.Errorf("key of %s is %q, want %q", c.key, got, c.path)
		}
		if got, err := ParseKeyPath(c.path); got != c.key || err != nil {
			t.Errorf("%q is %s (%v), want %s", c.path, got, err, c.key)
		}
	}
	for _, path := range []string{"", "isthmus", "isthmus/v1alpha1/", "isthmus/v1alpha1/Cluster", "isthmus/v1alpha1/Cluster/", "isthmus/v1alpha1/cluster/a",
		"isthmus/v1alpha1/AppExport/a", "isthmus/v1alpha1/AppExport/a/b/c", "isthmus/v1alpha1/AppExport//b", "isthmus/v1alpha1/AppExport/A/b", "/isthmus/v1alpha1/Cluster/a"} {
		if key, err := ParseKeyPath(path); err == nil {
			t.Errorf("%q is read as %s; want an error", path, key)
		}
	}
}

func TestNearestName(t *testing.T) {
	fields := []string{"app", "namespace", "routes", "whenStale"}
	for in, want := range map[string]string{"route": "routes", "namepsace": "namespace", "when_stale": "whenStale", "WhenStale": "whenStale", "apps": "app", "spec": "", "": "", "x": ""} {
		if got := strict.Nearest(in, fields); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}

// FuzzDecodeYAML holds that nothing makes the decoder fail, and that whatever it takes
// can be written and read again.
func FuzzDecodeYAML(f *testing.F) {
	f.Add([]byte(design))
	f.Add([]byte(apitest.Selection("  - &a {app: a}\n  - *a\n")))
	f.Add([]byte(apitest.Trusting(apitest.EastRoot + apitest.NorthRoot)))
	f.Add([]byte(apitest.Checked("grpc: {service: a, tls: true}, interval: 1s")))
	f.Add([]byte(apitest.Instance(`address: "10.0.0.5:50002", zone: "-----BEGIN x"`)))
	f.Add([]byte(apitest.Object("Cluster", "{name: east}", `{gateways: [{address: "[fe80::1%\x7f]:443"}, {address: "[fe80::1%\N]:443"}, {address: "fe80::1%a]b"}]}`)))
	f.Add([]byte("\ufeff---\n- a\n...\n%YAML 1.1\n---\nkind: !x ~\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objs, errs := DecodeYAML("f", data)
		_ = errs.Error()
		for _, obj := range objs {
			again, errs := DecodeYAML("f", EncodeYAML(obj))
			if len(errs) > 0 || len(again) != 1 || !bytes.Equal(EncodeJSON(again[0]), EncodeJSON(obj)) {
				t.Fatalf("%v: read again as %v (%v)", obj, again, errs)
			}
		}
	})
}

// FuzzDecodeJSON holds the same for JSON.
func FuzzDecodeJSON(f *testing.F) {
	for _, obj := range designObjects() {
		f.Add(KeyPath(obj.Key()), EncodeJSON(obj))
	}
	f.Add("isthmus/v1alpha1/Cluster/a", []byte(`{"kind":"Cl\u0075ster","spec":[1,-2.5e3,true,null]}`))
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		obj, err := DecodeJSON(path, data)
		if err != nil {
			_ = err.Error()
			return
		}
		again, err := DecodeJSON(path, EncodeJSON(obj))
		if err != nil || !reflect.DeepEqual(obj, again) {
			t.Fatalf("%v: read again as %v (%v)", obj, again, err)
		}
	})
}

// FuzzParseKeyPath holds that a key that is taken is the only one of its object.
func FuzzParseKeyPath(f *testing.F) {
	f.Add("isthmus/v1alpha1/Cluster/east")
	f.Add("isthmus/v1alpha1/AppExport/shop/orders")
	f.Fuzz(func(t *testing.T, path string) {
		if key, err := ParseKeyPath(path); err == nil && KeyPath(key) != path {
			t.Fatalf("%q is %s, whose key is %q", path, key, KeyPath(key))
		}
	})
}

func manyObjects(n, endpoints int) []*catalog.AppEndpoints {
	all := make([]*catalog.AppEndpoints, n)
	for i := range all {
		s := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}}
		for j := range endpoints {
			s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", (i+j*37+1)%n)}})
		}
		all[i] = s
	}
	return all
}

// BenchmarkDecode10000 reads 10,000 objects of 20 endpoints each.
func BenchmarkDecode10000(b *testing.B) {
	objs := manyObjects(10_000, 20)
	paths, texts, whole := make([]string, len(objs)), make([][]byte, len(objs)), []byte(nil)
	for i, obj := range objs {
		paths[i], texts[i] = KeyPath(obj.Key()), EncodeJSON(obj)
		whole = append(append(whole, EncodeYAML(obj)...), "---\n"...)
	}
	b.Run("JSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range texts {
				if _, err := DecodeJSON(paths[i], texts[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("YAML", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, errs := DecodeYAML("f", whole); len(errs) > 0 {
				b.Fatal(errs[0])
			}
		}
	})
}

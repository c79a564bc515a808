package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// taken is an entry whose calls guests take: some by a header, and all.
func taken() *catalog.Entry {
	guest := catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "anna", Weight: 1}, Gateway: true, Ready: 1, Instances: []uint32{7}, Addresses: []string{"orders.shop.anna.isthmus.internal:15443"}}
	e := catalog.NewEntry(orders, catalog.TextRule("a rule"), []catalog.Route{here})
	e.Own = &catalog.Own{Hash: catalog.Hash{Header: "x-user"}, Takes: []catalog.TakenRoute{
		{Route: guest, Header: catalog.HeaderValue{Name: "x-dev", Value: "anna"}},
		{Route: catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "ben", Weight: 1}, State: catalog.LeaseExpired}},
	}}
	return e
}

func TestTakesComeBackAsTheyWere(t *testing.T) {
	b, err := proto.Marshal(Entry(taken()))
	if err != nil {
		t.Fatal(err)
	}
	var m pb.ViewEntry
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	back, err := ParseEntry(&m)
	if err != nil || !back.Same(taken()) || m.Digest != Digest(back) {
		t.Fatalf("came back as %+v, %v", back.Own, err)
	}
	// A sidecar that knows no guest calls as if there were none.
	m.Takes = nil
	if back, err = ParseEntry(&m); err != nil || len(back.Routes) != 1 || back.Takes() != nil {
		t.Errorf("without takes it is %+v, %v", back, err)
	}
	without := taken()
	if without.Own.Takes = nil; Digest(without) == Digest(taken()) {
		t.Error("the digest is the same without takes, so a sidecar would not hear of them")
	}
}

func TestTakesThatCantBeAreRefused(t *testing.T) {
	for what, edit := range map[string]func(*pb.ViewTake){
		"without a route":        func(m *pb.ViewTake) { m.Route = nil },
		"without a gateway":      func(m *pb.ViewTake) { m.Route.Gateway, m.Route.Instances = false, nil },
		"of a header of no name": func(m *pb.ViewTake) { m.Header.Name = "" },
		"of an empty value":      func(m *pb.ViewTake) { m.Header.Value = "" },
		"of a long value":        func(m *pb.ViewTake) { m.Header.Value = strings.Repeat("a", catalog.MaxHeaderValue+1) },
		"of upper case":          func(m *pb.ViewTake) { m.Header.Name = "X-Dev" },
		"of bytes":               func(m *pb.ViewTake) { m.Header.Name = "x-dev-bin" },
	} {
		m := Entry(taken())
		edit(m.Takes[0])
		if e, err := ParseEntry(m); err == nil {
			t.Errorf("%s: taken as %+v", what, e.Takes())
		}
	}
}

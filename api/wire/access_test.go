package wire_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func randomAccess(r *rand.Rand) *catalog.Access {
	set := func() *catalog.AppSet {
		var apps []catalog.App
		for range r.IntN(5) {
			apps = append(apps, catalog.App{Namespace: "shop", ID: fmt.Sprint("a", r.IntN(9))})
		}
		return (*catalog.AppSet)(nil).With(apps, nil)
	}
	var remote []catalog.RemoteCaller
	for range r.IntN(3) {
		remote = append(remote, catalog.RemoteCaller{
			Cluster: "east", Domain: []string{"", "east.example"}[r.IntN(2)], Namespace: []string{"", "shop"}[r.IntN(2)], App: []string{"", "web"}[r.IntN(2)],
		})
	}
	return &catalog.Access{
		Revision: r.Uint64N(9), Mode: catalog.GuardMode(r.IntN(3)), Declared: set(), Undeclared: set(), Remote: catalog.NewRemoteCallers(remote),
	}
}

func TestAccessGoesOverTheWire(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var at *catalog.Access
	for step := range 500 {
		to := randomAccess(r)
		from := at
		if r.IntN(10) == 0 {
			from = nil
		}
		encoded, err := proto.Marshal(wire.Access(from, to))
		if err != nil {
			t.Fatal(err)
		}
		var m pb.Access
		if err := proto.Unmarshal(encoded, &m); err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseAccess(at, &m)
		if err != nil || !got.Same(to) || got.Revision != to.Revision || !wire.SameAccess(m.Digest, got) {
			t.Fatalf("step %d: %+v, %v; want %+v", step, got, err, to)
		}
		if at != nil && at.Same(to) != wire.SameAccess(m.Digest, at) {
			t.Fatalf("step %d: the digests of %+v and %+v", step, at, to)
		}
		at = got
	}
}

func TestNobodyUnreadableIsLetIn(t *testing.T) {
	m := &pb.Access{
		Whole: true, Guard: "enforce", Declared: &pb.AppSetEdit{Put: []*pb.App{{Namespace: "shop", Id: "checkout"}, {Id: "a b"}, nil}},
		RemoteChanged: true, Remote: []*pb.RemoteCaller{{Cluster: "east", Namespace: "Not A Namespace"}, {Namespace: "shop"}},
	}
	a, err := wire.ParseAccess(nil, m)
	if err == nil {
		t.Error("no error")
	}
	if a.Declared.Len() != 1 || len(a.Remote.All()) != 0 || a.Mode != catalog.GuardEnforce {
		t.Errorf("got %+v", a)
	}
	if b, err := wire.ParseAccess(a, &pb.Access{Guard: "newer"}); err == nil || b.Mode != catalog.GuardEnforce {
		t.Errorf("an unknown mode makes %v, %v", b.Mode, err)
	}
}

// FuzzAccess holds whatever a service sends to values that can be sent on.
func FuzzAccess(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		b, err := proto.Marshal(wire.Access(nil, randomAccess(r)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.Access
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		a, _ := wire.ParseAccess(nil, &m) // an error leaves callers out
		again, err := wire.ParseAccess(nil, wire.Access(nil, a))
		if err != nil || !again.Same(a) {
			t.Fatalf("%+v comes back as %+v: %v", a, again, err)
		}
	})
}

package stream

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/rawgrpc"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/budget"
)

// FuzzOpening compares the decoding of a first message with protobuf's own.
func FuzzOpening(f *testing.F) {
	for _, m := range []*pb.WatchRequest{
		{},
		{Request: &pb.WatchRequest_Drain{Drain: &pb.Drain{}}},
		{Request: &pb.WatchRequest_Hello{Hello: &pb.Hello{
			App: &pb.App{Namespace: "shop", Id: "checkout"}, Instance: &pb.Instance{Id: "1", Address: "10.0.0.1:1"}, Revision: 7, Provisional: true,
			Known: []*pb.Known{{App: &pb.App{Namespace: "shop", Id: "orders"}, Digest: 1}, {App: &pb.App{Namespace: "shop"}}, {App: &pb.App{Namespace: "a", Id: "b"}, Digest: 3}},
		}}},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(append(text, text...)) // messages that come twice are one
	}
	sets := newKnownSets(budget.New(knownTotal, knownTotal))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseFirstRequest(&rawgrpc.Received{Bytes: text}, sets, "fuzz", 1000)
		if err != nil {
			return // protobuf accepts some messages that are refused here, such as a known entry without an app
		}
		defer got.known.release()
		var want pb.WatchRequest
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &want); err != nil {
			t.Fatalf("protobuf refuses it: %v", err)
		}
		drains := 0
		_, _ = split(text, 2, func([]byte) error { drains++; return nil })
		hello := want.GetHello()
		if hello == nil || drains > 0 {
			return // protobuf takes the last of hellos and drains, and this decoder the hellos
		}
		digests := map[catalog.App]uint64{}
		for _, k := range hello.Known {
			digests[catalog.App{Namespace: k.GetApp().GetNamespace(), ID: k.GetApp().GetId()}] = k.GetDigest()
		}
		hello.Known = nil
		if !proto.Equal(hello, got.GetHello()) {
			t.Fatalf("%v, protobuf has %v", got.GetHello(), hello)
		}
		if len(digests) != len(got.known.digests()) {
			t.Fatalf("known %v, protobuf has %v", got.known.digests(), digests)
		}
		for app, digest := range digests {
			if other, ok := got.known.digests()[app]; !ok || other != digest {
				t.Fatalf("%v has digest %d (%v), protobuf has %d", app, other, ok, digest)
			}
		}
	})
}

// TestClientsThatKnowTheSameShareIt checks that clients share a set until the last one releases
// it.
func TestClientsThatKnowTheSameShareIt(t *testing.T) {
	sets := newKnownSets(budget.New(1000, 1000))
	of := func(ids ...string) *entries {
		e := &entries{max: 100}
		for _, id := range ids {
			if err := e.put([]byte("shop"), []byte(id), 1); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	var all []*knownEntries
	for range 100 { // 100 of them would be far beyond the budget
		one, err := sets.acquire("a", of("x", "y", "z"))
		if err != nil {
			t.Fatal(err)
		}
		two, err := sets.acquire("b", of("z", "y", "x"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one, two)
	}
	if _, err := sets.acquire("c", of("1", "2", "3", "4", "5", "6", "7", "8")); err == nil {
		t.Error("more is held than there is room for")
	}
	for _, k := range all {
		if len(k.digests()) != 3 {
			t.Fatalf("a set that somebody has is %v", k.digests())
		}
		k.release()
		k.release()
	}
	if len(sets.sets) != 0 {
		t.Errorf("%d sets are held for nobody", len(sets.sets))
	}
	if k, err := sets.acquire("c", of("1", "2", "3", "4", "5", "6", "7", "8")); err != nil {
		t.Errorf("there is room again: %v", err)
	} else {
		k.release()
	}
}

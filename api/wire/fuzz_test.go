package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// FuzzEntry reads entries from outside: whatever is taken can be looked up and
// explained, is bounded, and comes back as it was.
func FuzzEntry(f *testing.F) {
	for _, e := range []*catalog.Entry{example(), ramping(), inZones(), taken()} {
		b, err := proto.Marshal(Entry(e))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.ViewEntry
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		e, err := ParseEntry(&m)
		if err != nil {
			return
		}
		for range 8 {
			if address, _ := e.Pick(); (address == "") != (e.Explain().Address == "") && e.Outcome() != catalog.OK {
				t.Errorf("picked %q, and the outcome is %v", address, e.Outcome())
			}
		}
		for i := range e.Routes {
			if n := e.Routes[i].Shards(); n > catalog.MaxShards {
				t.Errorf("%d shards were taken", n)
			}
		}
		for i := range e.Takes() {
			if r := &e.Takes()[i]; r.Usable() && !r.Gateway || r.Header != (catalog.HeaderValue{}) && r.Header.Check() != nil {
				t.Errorf("a take was taken of %+v", r)
			}
		}
		sent := Entry(e)
		back, err := ParseEntry(sent)
		if err != nil {
			t.Fatalf("what was taken can't be sent on: %v", err)
		}
		if !back.SameRoutes(e) || Digest(back) != sent.Digest {
			t.Errorf("came back as %+v, was %+v", back, e)
		}
	})
}

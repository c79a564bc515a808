package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestAppendPutIsWhatProtobufMakes(t *testing.T) {
	long := example()
	for range 500 {
		long.Routes[0].Addresses = append(long.Routes[0].Addresses, "10.0.0.1:50002")
	}
	for what, e := range map[string]*catalog.Entry{
		"an example": example(), "shards and ramps": ramping(), "zones": inZones(), "one longer than the room on the stack": long,
		"damped": held(here), "damped and used": held(),
		"next to nothing": catalog.NewEntry(orders, catalog.Rule{}, nil),
		"empty names":     catalog.NewEntry(catalog.App{}, catalog.TextRule(" "), []catalog.Route{{}}),
	} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.WatchResponse{Put: []*pb.ViewEntry{Entry(e)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendPut(nil, e); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded as\n%x, want\n%x", what, got, want)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	e := example()
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = AppendPut(make([]byte, 0, 256), e)
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		m := &pb.WatchResponse{Put: []*pb.ViewEntry{Entry(e)}}
		b.ReportAllocs()
		for b.Loop() {
			_, _ = proto.Marshal(m)
		}
	})
}

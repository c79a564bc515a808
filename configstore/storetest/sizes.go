package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func sizes() []specification {
	return []specification{
		{"an object is held up to the limit exactly", atTheLimit},
		{"an object beyond the limit is an honest error, and nothing is written", tooLarge},
		{"large objects at once are written, or are an honest error", largeAtOnce},
		{"a batch beyond the limit is an honest error, and nothing is written", tooMany},
	}
}

func atTheLimit(t *testing.T, b Backend) {
	s := open(t, b)
	largest := sized(t, "large", b.MaxObject)
	r := Watch(t, s, "")
	put(t, b, s, largest)
	r.awaitSet(largest)
	got, err := s.Get(t.Context(), largest.Key())
	if err != nil || len(api.EncodeJSON(got.Object)) != b.MaxObject {
		t.Errorf("get the largest object: %v; want it as it was", err)
	}
}

func tooLarge(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	size := b.MaxObject + 1
	writes := []configstore.Write{{Object: sized(t, "large", size)}, {Object: Cluster("east", "b")}}
	if b.MaxBatch == 1 {
		writes = writes[:1]
	}
	_, err := s.Write(t.Context(), writes...)
	if !errors.Is(err, configstore.ErrTooLarge) {
		t.Fatalf("write of %d bytes: %v; want ErrTooLarge", size, err)
	}
	for _, n := range []int{size, b.MaxObject} {
		if !strings.Contains(err.Error(), strconv.Itoa(n)) {
			t.Errorf("write of %d bytes: %v; want both sizes named, that of the object and the limit of %d", size, err, b.MaxObject)
		}
	}
	put(t, b, s, Cluster("west", "a"))
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
}

func largeAtOnce(t *testing.T, b Backend) {
	orSkip(t, b.MaxBatch > 0, "this store writes any number of objects at once")
	b.atOnce(t, 2)
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	objects := []catalog.Object{Cluster("east", "b")}
	writes := []configstore.Write{{Object: objects[0]}}
	for i := 1; i < min(3, b.MaxBatch); i++ {
		o := sized(t, fmt.Sprintf("large-%d", i), b.MaxObject)
		objects, writes = append(objects, o), append(writes, configstore.Write{Object: o})
	}
	if _, err := s.Write(t.Context(), writes...); err != nil {
		if !errors.Is(err, configstore.ErrTooLarge) {
			t.Errorf("write of %d objects of %d bytes: %v; want ErrTooLarge", len(writes)-1, b.MaxObject, err)
		}
		objects = []catalog.Object{Cluster("east", "a")}
	}
	Watch(t, s, "").awaitSet(objects...)
}

func tooMany(t *testing.T, b Backend) {
	orSkip(t, b.MaxBatch > 0, "this store writes any number of objects at once")
	s := open(t, b)
	writes := make([]configstore.Write, b.MaxBatch+1)
	objects := make([]catalog.Object, len(writes))
	for i := range writes {
		objects[i] = Cluster(fmt.Sprintf("c%d", i), "a")
		writes[i].Object = objects[i]
	}
	_, err := s.Write(t.Context(), writes...)
	if !errors.Is(err, configstore.ErrTooLarge) || !strings.Contains(err.Error(), strconv.Itoa(b.MaxBatch)) {
		t.Errorf("write of %d objects at once: %v; want ErrTooLarge, and the limit of %d", len(writes), err, b.MaxBatch)
	}
	r := Watch(t, s, "")
	r.awaitSet()
	write(t, s, writes[:b.MaxBatch]...)
	r.awaitSet(objects[:b.MaxBatch]...)
}

package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func invalidObjects() []specification {
	return []specification{
		{"a bad object is refused by name, and the rest stand", badObject},
		{"the last good object stands in for a bad one", lastGood},
		{"a bad object that is mended is taken", mended},
		{"a bad object that is deleted is gone", badDeleted},
		{"an object under another's key is refused", wrongKey},
		{"a foreign key under our prefix disturbs nothing", foreignKey},
		{"what is refused is still refused after coming back", refusedAfterResume},
		{"many objects are got at once, each as by itself", manyAtOnce},
	}
}

var (
	eastKey = catalog.Key{Kind: catalog.KindCluster, Name: "east"}
	badEast = []byte(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":"east"},"spec":{"netwrk":"x"}}`)
)

func badObject(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("west", "a"))
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	r := Watch(t, s, "")
	r.awaitSet(Cluster("west", "a"))
	refusal := r.awaitRefused(eastKey).Refused[0]
	if text := refusal.Err.Error(); !strings.Contains(text, "spec.netwrk: unknown field") || refusal.Where == "" {
		t.Errorf("refused %q with %q; want the place and the mistake", refusal.Where, text)
	}
	put(t, b, s, Cluster("north", "a"))
	r.awaitSet(Cluster("north", "a"), Cluster("west", "a"))
	r.awaitRefused(eastKey)
	if _, err := s.Get(t.Context(), eastKey); !errors.Is(err, configstore.ErrInvalid) {
		t.Errorf("get of the bad object: %v; want ErrInvalid", err)
	}
	if objects, refused, err := s.List(t.Context()); err != nil || len(objects) != 2 || len(refused) != 1 || refused[0].Key != eastKey {
		t.Errorf("list: %d objects, refused %v, %v; want 2 and the bad one", len(objects), refused, err)
	}
}

func lastGood(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	r.awaitRefused(eastKey)
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))

	// It stands also when the reader has to be given the full set again.
	since := comeBack(t, s, r, func() {})
	r.await("word from the store", func() bool { return len(r.changes) > since })
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	r.awaitRefused(eastKey)
}

func mended(t *testing.T, b Backend) {
	s := open(t, b)
	r := Watch(t, s, "")
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	r.awaitRefused(eastKey)
	b.PutRaw(t, s, api.KeyPath(eastKey), api.EncodeJSON(Cluster("east", "b")))
	r.awaitRefused()
	r.awaitSet(Cluster("east", "b"))
}

func badDeleted(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	r.awaitRefused(eastKey)
	b.PutRaw(t, s, api.KeyPath(eastKey), nil)
	r.awaitSet(Cluster("west", "a"))
	r.awaitRefused()
}

func wrongKey(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	b.PutRaw(t, s, "isthmus/v1alpha1/Cluster/west", api.EncodeJSON(Cluster("east", "b")))
	r.await("a refusal", func() bool { return len(r.changes[len(r.changes)-1].Refused) > 0 })
	r.awaitSet(Cluster("east", "a"))
}

func foreignKey(t *testing.T, b Backend) {
	s := open(t, b)
	for _, path := range []string{"isthmus/v1alpha1/", "isthmus/v1alpha1/Unknown/a/b", "isthmus/v1alpha1/Cluster/a/b", "isthmus/v1alpha1/Cluster/UPPER", "isthmus/v1alpha1/README"} {
		b.PutRaw(t, s, path, []byte("# nothing of ours"))
	}
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	for _, refusal := range r.All()[0].Refused {
		if refusal.Key != (catalog.Key{}) || refusal.Where == "" {
			t.Errorf("foreign key refused as %+v; want its place and no object's name", refusal)
		}
	}
	put(t, b, s, Cluster("east", "b"))
	r.awaitSet(Cluster("east", "b"))
}

func refusedAfterResume(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("west", "a"))
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	r := Watch(t, s, "")
	r.awaitRefused(eastKey)
	since := comeBack(t, s, r, func() { put(t, b, s, Cluster("west", "b")) })
	r.await("word from the store", func() bool { return len(r.changes) > since })
	r.awaitSet(Cluster("west", "b"))
	r.awaitRefused(eastKey)
}

// manyAtOnce gets more objects than a server takes in one request.
func manyAtOnce(t *testing.T, b Backend) {
	orSkip(t, b.PutRaw != nil, "nothing can be put past this store's checks")
	s := open(t, b)
	var objects []catalog.Object
	for i := range 300 {
		objects = append(objects, export("shop", fmt.Sprintf("app-%d", i)))
	}
	revisions := put(t, b, s, objects...)
	b.PutRaw(t, s, api.KeyPath(eastKey), badEast)
	var keys []catalog.Key
	for _, o := range objects {
		keys = append(keys, o.Key())
	}
	keys = append(keys, eastKey, Cluster("none", "").Key())
	got, err := configstore.GetMany(t.Context(), s, keys)
	if err != nil || len(got) != len(keys) {
		t.Fatalf("got %d of %d objects, %v", len(got), len(keys), err)
	}
	for i, o := range objects {
		if got[i].Err != nil || got[i].Object.Key() != o.Key() || got[i].Revision != revisions[i] {
			t.Errorf("%s: %+v; want revision %s", o.Key(), got[i], revisions[i])
		}
	}
	bad, none := got[len(objects)], got[len(objects)+1]
	if !errors.Is(bad.Err, configstore.ErrInvalid) || bad.Object != nil || !errors.Is(none.Err, configstore.ErrNotFound) {
		t.Errorf("the bad one %+v, the missing one %+v", bad, none)
	}
	if bad.Revision == "" {
		return // this store can't tell
	}
	if _, err := s.Write(t.Context(), configstore.Write{Delete: eastKey, If: revisions[0]}); !errors.Is(err, configstore.ErrConflict) {
		t.Errorf("what can't be used was deleted for another revision: %v", err)
	}
	write(t, s, configstore.Write{Delete: eastKey, If: bad.Revision})
}

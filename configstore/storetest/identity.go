package storetest

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore"
)

func identities() []specification {
	return []specification{
		{"everybody who opens a place gets one identity, which is no object, and another place has another", identified},
		{"who may not write gets the identity that is there, or none, and is not disturbed", identifiedByReader},
		{"a server that refuses our credentials, or is away, is an error and no identity", unidentified},
	}
}

// identityOf asks a store; it skips the test of one that has none.
func identityOf(t testing.TB, s configstore.ReadWriter, anew string) (string, error) {
	t.Helper()
	i, ok := s.(configstore.Identifier)
	orSkip(t, ok, "this store has no identity")
	return i.Identity(t.Context(), anew)
}

func identified(t *testing.T, b Backend) {
	s := open(t, b)
	_, ok := s.(configstore.Identifier)
	orSkip(t, ok, "this store has no identity")
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	stores := []configstore.ReadWriter{s}
	for b.Shared && len(stores) < 4 {
		stores = append(stores, open(t, b))
	}
	got := make([]string, len(stores))
	var all errgroup.Group
	for i := range stores {
		all.Go(func() (err error) {
			got[i], err = identityOf(t, stores[i], fmt.Sprint("identity-", i))
			return err
		})
	}
	if err := all.Wait(); err != nil || got[0] == "" || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 1 {
		t.Fatalf("four who open one place at once get %q, %v; want the same for all", got, err)
	}
	if again, err := identityOf(t, s, ""); err != nil || again != got[0] {
		t.Errorf("asked again: %q, %v; want %q", again, err, got[0])
	}
	put(t, b, s, Cluster("west", "a")) // what comes before it shows that nothing else came
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	for _, c := range r.All() {
		if len(c.Deleted) > 0 || len(c.Refused) > 0 {
			t.Errorf("a change that nobody wrote: %+v", c)
		}
	}
	if objects, refused, err := s.List(t.Context()); err != nil || len(objects) != 2 || len(refused) > 0 {
		t.Errorf("List: %v, refused %v, %v; want the two objects alone", objects, refused, err)
	}
	remove(t, s, Cluster("east", ""))
	remove(t, s, Cluster("west", ""))
	if empty, err := identityOf(t, s, "anew"); err != nil || empty != got[0] {
		t.Errorf("once every object is deleted: %q, %v; want %q", empty, err, got[0])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if opened, err := identityOf(t, open(t, b), ""); err != nil || opened != got[0] {
		t.Errorf("opened again: %q, %v; want %q", opened, err, got[0])
	}
	orSkip(t, b.Elsewhere != nil, "there is no other place")
	if elsewhere, err := identityOf(t, Closing(t, b.Elsewhere(t)), "elsewhere"); err != nil || elsewhere == "" || elsewhere == got[0] {
		t.Errorf("another place: %q, %v; want another than %q", elsewhere, err, got[0])
	}
}

func identifiedByReader(t *testing.T, b Backend) {
	orSkip(t, b.Unwritable != nil, "this store has no credentials to read and not write")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	reading := Closing(t, b.Unwritable(t))
	before, err := identityOf(t, reading, "a")
	if err != nil {
		t.Errorf("before there is one: %q, %v; want no error", before, err)
	}
	id, err := identityOf(t, s, "b")
	if err != nil || before != "" && before != id {
		t.Errorf("who may write: %q, %v; who may not got %q", id, err, before)
	}
	after, err := identityOf(t, reading, "a")
	if err != nil || after != "" && after != id {
		t.Errorf("once there is one: %q, %v; want %q or none", after, err, id)
	}
	t.Logf("who may only read gets %q, and %q once it is %q", before, after, id)
	Watch(t, reading, "").awaitSet(Cluster("east", "a"))
}

func unidentified(t *testing.T, b Backend) {
	s := open(t, b)
	if _, err := identityOf(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	orSkip(t, b.Denied != nil && b.Fail != nil, "this store has no server with credentials")
	if id, err := identityOf(t, Closing(t, b.Denied(t)), "a"); err == nil && id != "" {
		t.Errorf("wrong credentials: %q, %v; want no identity", id, err)
	}
	defer b.Fail(t, s)()
	id, err := identityOf(t, s, "a")
	if err == nil || id != "" {
		t.Errorf("a server that is away: %q, %v; want an error", id, err)
	}
	b.names(t, "identity", err)
}

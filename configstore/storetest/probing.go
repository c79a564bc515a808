package storetest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

func probing() []specification {
	return []specification{
		{"a store that is tried out says who answers and that it may be written, and stays as it is", triedOut},
		{"who may read and not write is told so without a write", mayNotWrite},
		{"wrong credentials are ErrDenied to who watches, so that it asks more seldom", deniedWatch},
	}
}

func triedOut(t *testing.T, b Backend) {
	s := open(t, b)
	p, ok := s.(configstore.Prober)
	orSkip(t, ok, "this store can't be tried out")
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	before, _, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if server, err := p.Server(t.Context()); err != nil || server == "" {
		t.Errorf("Server: %q, %v", server, err)
	}
	if err := p.MayWrite(t.Context()); err != nil {
		t.Errorf("MayWrite: %v", err)
	}
	put(t, b, s, Cluster("west", "a")) // what comes before it shows that nothing else came
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	after, _, err := s.List(t.Context())
	if err != nil || len(after) != 2 || !reflect.DeepEqual(after[0], before[0]) {
		t.Errorf("before %v, after it was tried out %v, %v", before, after, err)
	}
	for _, c := range r.All() {
		if len(c.Deleted) > 0 || len(c.Refused) > 0 {
			t.Errorf("a change that nobody wrote: %+v", c)
		}
	}
}

func mayNotWrite(t *testing.T, b Backend) {
	orSkip(t, b.Unwritable != nil, "this store has no permissions to write")
	p, ok := Closing(t, b.Unwritable(t)).(configstore.Prober)
	orSkip(t, ok, "this store can't be tried out")
	err := p.MayWrite(t.Context())
	if !errors.Is(err, configstore.ErrDenied) && !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("MayWrite: %v, want ErrDenied or ErrReadOnly", err)
	}
	b.names(t, "MayWrite", err)
	if server, err := p.Server(t.Context()); err != nil || server == "" {
		t.Errorf("Server: %q, %v", server, err)
	}
}

func deniedWatch(t *testing.T, b Backend) {
	orSkip(t, b.Denied != nil, "this store has no credentials")
	s := Closing(t, b.Denied(t))
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	if !errors.Is(err, configstore.ErrDenied) {
		t.Errorf("Watch: %v, want ErrDenied", err)
	}
	b.names(t, "Watch", err)
	if p, ok := s.(configstore.Prober); ok {
		if err := p.MayWrite(t.Context()); !errors.Is(err, configstore.ErrDenied) {
			t.Errorf("MayWrite: %v, want ErrDenied", err)
		}
	}
}

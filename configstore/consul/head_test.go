package consul

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func path(n int) string { return fmt.Sprintf("%sAppEndpoints/shop/app-%d", isthmus.KeyPrefix, n) }

func TestAHeadGoesBackFarEnoughAndStaysSmall(t *testing.T) {
	var h head
	for i := range 1000 {
		h = parseHead(uint64(10*(i+1)), h.next([]string{path(i)}, nil))
	}
	if n := len(h.next([]string{path(1)}, nil)); n > 4*headBytes {
		t.Errorf("it has %d bytes after 1,000 writes", n)
	}
	if n := len(h.Batches); n < 50 {
		t.Errorf("it has %d writes; want 50 at least", n)
	}
	if h.Revision() != 10_000 {
		t.Errorf("the last write is at %d", h.Revision())
	}
	paths := make([]string, MaxBatch)
	for i := range paths {
		paths[i] = path(i)
	}
	if h = parseHead(20_000, h.next(paths, nil)); len(h.Batches) == 0 || len(h.Batches[0].Paths) != MaxBatch {
		t.Error("it does not name all keys of the largest write")
	}
}

func TestAHeadNamesNoKeyOfAnythingElse(t *testing.T) {
	for _, text := range []string{
		"isthmus/1\n1 0011223344556677 ../x", "isthmus/1\n1 0011223344556677 Cluster/east Other",
		`{"steps":[{"id":"0011223344556677","keys":["../x"]}]}`,
	} {
		if h := parseHead(5, []byte(text)); len(h.Batches) != 0 || h.index != 5 {
			t.Errorf("%q is read as %+v", text, h)
		}
	}
}

func TestAHeadCarriesWhatTheNewestWritesMade(t *testing.T) {
	var h head
	write := func(index uint64, paths []string, values ...[]byte) {
		h = parseHead(index, h.next(paths, values))
	}
	write(10, []string{path(0)}, []byte(`{"a":0}`))
	write(20, []string{path(1), path(2)}, []byte(`{"a":1}`), nil)
	write(30, []string{path(1)}, []byte(`{"a":2}`))
	now, ok := carried(h.Batches[:2], nil)
	want := []configstore.Pair{{Path: path(1), Value: []byte(`{"a":2}`), Revision: "30"}}
	if !ok || !reflect.DeepEqual(now.pairs, want) || !slices.Equal(now.missing, []string{path(2)}) {
		t.Errorf("after the first write: %+v, %t", now, ok)
	}
	now, ok = carried(h.Batches, map[string]string{path(0): "15", path(1): "31", path(2): "20"})
	if !ok || len(now.pairs) != 0 || !slices.Equal(now.missing, []string{path(2)}) {
		t.Errorf("with what other hands made of it later: %+v, %t; want the deletion only", now, ok)
	}
	write(40, nil)
	if now, ok := carried(h.Batches[:1], nil); ok {
		t.Errorf("of a write of too many keys: %+v", now)
	}
	write(50, []string{path(3)})
	write(60, []string{path(4)}, []byte(`{"a":4}`))
	if now, ok := carried(h.Batches[:2], nil); ok {
		t.Errorf("with a write that does not say its value: %+v", now)
	}
}

// putAsBefore writes as programs did until the head had the format of configstore.Head. They
// read such a head as one that explains nothing, so theirs has one step.
func (p *testPlace) putAsBefore(t *testing.T, n int, name, network string) {
	t.Helper()
	object := cluster(name, network)
	key := isthmus.KeyPath(object.Key())
	value := isthmus.EncodeJSON(object)
	head := fmt.Sprintf(`{"about":"Which keys Isthmus wrote last.","steps":[{"id":"%016x","keys":[%q],"values":[%s]}]}`,
		n, strings.TrimPrefix(key, isthmus.KeyPrefix), value)
	ops := api.KVTxnOps{
		{Verb: api.KVSet, Key: p.prefix + key, Value: value},
		{Verb: api.KVSet, Key: p.prefix + isthmus.KeyPrefix + headName, Value: []byte(head)},
	}
	if ok, answer, _, err := shared.Admin.KV().Txn(ops, nil); err != nil || !ok {
		t.Fatal(answer, err)
	}
}

// TestWritersOfTwoVersionsShareAStore is a rolling upgrade. Readers of the earlier version read
// everything when they find the new text, as for any that is not JSON.
func TestWritersOfTwoVersionsShareAStore(t *testing.T) {
	p := newPlace(t)
	p.putAsBefore(t, 0, "east", "a")
	s := p.open(t, p.token)
	f := storetest.Follow(t, s)
	f.AwaitClusters("east=a")
	for i := range 10 {
		before, now := fmt.Sprintf("before-%d", i), fmt.Sprintf("now-%d", i)
		p.putAsBefore(t, i+1, "east", before)
		storetest.Put(t, s, cluster("west", now))
		f.AwaitClusters("east="+before, "west="+now)
		storetest.Put(t, s, cluster("west", "again-"+now))
		p.putAsBefore(t, i+100, "east", "again-"+before)
		f.AwaitClusters("east=again-"+before, "west=again-"+now)
	}
	storetest.Put(t, s, cluster("west", "last"))
	f.AwaitClusters("east=again-before-9", "west=last")
	all, err := s.readAll(t.Context())
	if err != nil || len(all.head.Batches) < 2 {
		t.Errorf("the last head has %d batches (%v); want also that of before", len(all.head.Batches), err)
	}
}

package consul

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func cluster(name, network string) *catalog.Cluster { return storetest.Cluster(name, network) }

func (p *testPlace) byHand(t testing.TB, o catalog.Object) {
	t.Helper()
	p.put(t, isthmus.KeyPath(o.Key()), isthmus.EncodeJSON(o))
}

func TestAChangeCostsWhatHasChangedAndRestCostsAHeartbeat(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	fill(t, s, 2000)
	f := storetest.Follow(t, s)
	f.AwaitStatus("2,000 objects", func(s configstore.Status) bool { return s.Objects == 2000 })
	time.Sleep(recheckAfter) // the questions that wait have been asked
	writer := mustOpen(t, Config{Address: p.server.URL(), TLS: tlsOf(), Prefix: p.prefix, Token: serverstest.Secret(t, p.token)}, configstore.Scope{})
	defer writer.Close()
	before := p.link.Traffic()
	changed := time.Now()
	storetest.Put(t, writer, cluster("east", "a"))
	f.AwaitClusters("east=a")
	received := p.link.Traffic().Received - before.Received
	if took := time.Since(changed); took > recheckAfter {
		t.Logf("the machine is busy: it took %s, and so everything may have been read by now", took)
	} else if received > 20_000 {
		t.Errorf("one change among 2,000 objects came in %d bytes", received)
	}
	for end := time.Now().Add(time.Minute); p.link.Traffic().Received-before.Received < 200_000; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("to make sure, %d bytes were read; want everything", p.link.Traffic().Received-before.Received)
		}
	}
	time.Sleep(recheckAfter) // and the rest of everything
	before = p.link.Traffic()
	begin := time.Now()
	time.Sleep(11 * time.Second)
	rest := time.Since(begin) // longer on a machine that is busy
	if requests := p.link.Traffic().Requests - before.Requests; requests > int64(rest/agent.Heartbeat)+2 {
		t.Errorf("%d requests in %s in which nothing happened; want one each %s", requests, rest, agent.Heartbeat)
	}
	if n := len(f.All()); n != 2 {
		t.Errorf("%d changes; want the full set and one", n)
	}
}

func TestWhatOthersWriteInTheSameMomentIsFound(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	storetest.Put(t, s, cluster("east", "a"))
	f := storetest.Follow(t, s)
	f.AwaitClusters("east=a")
	// A transaction as two that Consul made at once: by other hands to west, by Isthmus to
	// east.
	now, err := s.readAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	value := now.head.next([]string{isthmus.KeyPath(cluster("east", "").Key())}, nil)
	ops := api.KVTxnOps{{Verb: api.KVSet, Key: s.headKey(), Value: value}}
	for _, o := range []*catalog.Cluster{cluster("east", "b"), cluster("west", "b")} {
		ops = append(ops, &api.KVTxnOp{Verb: api.KVSet, Key: p.prefix + isthmus.KeyPath(o.Key()), Value: isthmus.EncodeJSON(o)})
	}
	if ok, answer, _, err := shared.Admin.KV().Txn(ops, nil); err != nil || !ok {
		t.Fatal(answer, err)
	}
	f.AwaitClusters("east=b", "west=b")
}

func TestWritersOfEachSortAtOnceLoseNothing(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	f := storetest.Follow(t, s)
	const each = 40
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range each {
			p.byHand(t, cluster(fmt.Sprintf("hand-%d", i%10), fmt.Sprintf("n%d", i)))
		}
	})
	wait.Go(func() {
		for i := range each {
			if _, err := s.Write(t.Context(), configstore.Write{Object: cluster(fmt.Sprintf("apply-%d", i%10), fmt.Sprintf("n%d", i))}); err != nil {
				t.Error(err)
			}
		}
	})
	wait.Wait()
	var want []string
	for i := each - 10; i < each; i++ {
		want = append(want, fmt.Sprintf("hand-%d=n%d", i%10, i), fmt.Sprintf("apply-%d=n%d", i%10, i))
	}
	f.AwaitClusters(want...)
}

func TestAHeadThatIsBrokenOrGoneCostsTimeAndNothingElse(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	storetest.Put(t, s, cluster("east", "a"))
	f := storetest.Follow(t, s)
	f.AwaitClusters("east=a")
	for i, broken := range [][]byte{[]byte("{"), nil, []byte(`{"steps":[{"id":"x","keys":["Cluster/east"]}]}`)} {
		p.put(t, isthmus.KeyPrefix+headName, broken)
		network := fmt.Sprintf("n%d", i)
		storetest.Put(t, s, cluster("east", network))
		p.byHand(t, cluster("west", network))
		f.AwaitClusters("east="+network, "west="+network)
	}
	if objects, refused, err := s.List(t.Context()); err != nil || len(objects) != 2 || len(refused) != 0 {
		t.Errorf("list: %d objects, refused %v, %v", len(objects), refused, err)
	}
}

func TestATreeDeletedByHandIsDeleted(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	for _, name := range []string{"east", "west"} {
		storetest.Put(t, s, cluster(name, "a"))
	}
	f := storetest.Follow(t, s)
	f.AwaitClusters("east=a", "west=a")
	if _, err := shared.Admin.KV().DeleteTree(p.prefix, nil); err != nil {
		t.Fatal(err)
	}
	f.AwaitClusters()
	storetest.Put(t, s, cluster("east", "b"))
	f.AwaitClusters("east=b")
}

func TestWithoutAQuorumNothingIsEmpty(t *testing.T) {
	s := mustOpen(t, Config{Address: "http://" + leaderless(t).Addr()}, configstore.Scope{})
	defer s.Close()
	_, getErr := s.Get(t.Context(), cluster("east", "").Key())
	_, _, listErr := s.List(t.Context())
	_, writeErr := s.Write(t.Context(), configstore.Write{Object: cluster("east", "a")})
	watchErr := s.Watch(t.Context(), "", func(c configstore.Change) error {
		t.Errorf("delivered %+v", c)
		return nil
	})
	_, serverErr := s.Server(t.Context())
	for what, err := range map[string]error{"get": getErr, "list": listErr, "write": writeErr, "watch": watchErr, "server": serverErr} {
		if err == nil || errors.Is(err, configstore.ErrNotFound) || !strings.Contains(strings.ToLower(err.Error()), "no cluster leader") {
			t.Errorf("%s: %v; want that there is no leader", what, err)
		}
	}
}

// Consul leaves the index of a value that a write does not change; a Watch has to have
// the same revision as whoever writes if it is that one.
func TestAWriteOfWhatIsThereKeepsItsRevision(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	h := watchAll(t, p.open(t, p.token))
	revisions, err := s.Write(t.Context(), configstore.Write{Object: selection(0, 1)}, configstore.Write{Object: selection(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	h.await(selection(1, 0).Key(), "to-1")
	if _, err := s.Write(t.Context(), configstore.Write{Object: selection(0, 1)}, configstore.Write{Object: selection(1, 2)}); err != nil {
		t.Fatal(err)
	}
	h.await(selection(1, 0).Key(), "to-2")
	got, _ := h.set.Get(selection(0, 0).Key())
	stored, err := s.Get(t.Context(), selection(0, 0).Key())
	if err != nil || got.Revision != stored.Revision || stored.Revision != revisions[0] {
		t.Errorf("the watch has revision %s, the store %s (%v), and it was written as %s", got.Revision, stored.Revision, err, revisions[0])
	}
	changed, _ := h.set.Get(selection(1, 0).Key())
	if _, err := s.Write(t.Context(), configstore.Write{Object: selection(1, 3), If: changed.Revision}); err != nil {
		t.Errorf("a write for the revision that the watch has: %v", err)
	}
	h.await(selection(1, 0).Key(), "to-3")
	changed, _ = h.set.Get(selection(1, 0).Key()) // carried by .changes
	if _, err := s.Write(t.Context(), configstore.Write{Delete: selection(1, 0).Key(), If: changed.Revision}); err != nil {
		t.Errorf("a deletion for the revision that the watch has: %v", err)
	}
	h.await(selection(1, 0).Key(), "")
}

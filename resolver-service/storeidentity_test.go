package resolverservice

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// identityKey is the key of etcd, and its value; empty without one.
type identityKey struct {
	t      *testing.T
	client *clientv3.Client
}

func (k identityKey) get() string {
	answer, err := k.client.Get(k.t.Context(), configstore.IdentityPath)
	if err != nil || len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

func (k identityKey) put(id string) {
	if _, err := k.client.Put(k.t.Context(), configstore.IdentityPath, id); err != nil {
		k.t.Fatal(err)
	}
}

func (k identityKey) drop() {
	if _, err := k.client.Delete(k.t.Context(), configstore.IdentityPath); err != nil {
		k.t.Fatal(err)
	}
}

// Replicas put their identity back into a store that has lost it, so that one which starts afterwards
// is no other cluster to peers. They do not follow another one, and say so.
func TestAnIdentityThatTheStoreHasLostIsWrittenBack(t *testing.T) {
	server := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	key := identityKey{t, clientOf(t, server)}
	store, err := etcd.Open(etcd.Config{Endpoints: []string{server.Addr()}}, configstore.Scope{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var status live.Value[configstore.Status]
	status.Store(configstore.Status{Synced: true, Objects: 1})
	follow := func() *configstore.ClusterIdentity {
		s := &configstore.ClusterIdentity{Every: 20 * time.Millisecond}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = s.Follow(ctx, store, &status) })
		t.Cleanup(func() { cancel(); all.Wait() })
		serverstest.Await(t, "it has an identity", func() bool { return s.Get() != "" })
		return s
	}
	first, second := follow(), follow()
	id := first.Get()
	key.drop()
	serverstest.Await(t, "the identity is written back", func() bool { return key.get() == id })
	if third := follow(); second.Get() != id || third.Get() != id {
		t.Errorf("replicas go by %s, %s and %s", id, second.Get(), third.Get())
	}
	key.put("another")
	serverstest.Await(t, "the other identity is said", func() bool {
		return strings.HasPrefix(first.Problem(), "the store says that this cluster is another, and this replica goes by "+id)
	})
	if got := first.Get(); got != id {
		t.Errorf("it goes by %s; want %s until it ends", got, id)
	}
	key.drop()
	serverstest.Await(t, "all is well again", func() bool { return first.Problem() == "" && key.get() == id })
}

// A text that is no identity reaches no peer: one that is not UTF-8 would end every stream.
func TestATextThatIsNoIdentityCountsAsNone(t *testing.T) {
	server := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	key := identityKey{t, clientOf(t, server)}
	key.put("\xff\x1b[2J")
	ca := identitytest.NewCA(t)
	cfg := configOf(t, "east", ca)
	cfg.Store = Store{Etcd: &etcd.Config{Endpoints: []string{server.Addr()}}}
	east, west := start(t, cfg, ca), start(t, configOf(t, "west", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	east.within("it is said", func() bool { return len(east.status().GetProblems()) == 1 })
	found := false
	for _, r := range east.checks() {
		found = found || r.Check == check.StoreIdentity && r.Level == check.Warn && strings.Contains(r.Found, `"\xff\x1b[2J" in the store`) && strings.Contains(r.Fix, "delete the key")
	}
	if !found {
		t.Errorf("checks: %v", east.checks())
	}
	east.tells(0, "WARN something is wrong, and the service goes on check=store-identity of=etcd what=.*")
	west.apply(clusterAt("east", east.Addr("gateway"), staleAfter.String()))
	west.within("its exports", func() bool { return west.peer("east").GetExports() == 1 })
	if got := east.storeIdentity.Get(); got != "" {
		t.Errorf("peers are told %q", got)
	}
}

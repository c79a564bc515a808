package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// startLimit is how long members may take to start and to end, all in all.
const startLimit = 5 * time.Minute

// startEtcd starts members for one test.
func startEtcd(t testing.TB, size int, args ...string) []*servers.Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	members, err := servers.StartEtcdCluster(ctx, t.TempDir(), size, servers.EtcdOptions{Args: args})
	programstest.OrSkip(t, err)
	t.Cleanup(func() { _ = servers.KillEtcd(members...) })
	return members
}

func openAt(t testing.TB, c Config, members ...*servers.Etcd) *Store {
	t.Helper()
	for _, m := range members {
		c.Endpoints = append(c.Endpoints, m.URL())
	}
	s, err := Open(c, configstore.Scope{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Closing(t, s)
}

func clientAt(t testing.TB, members ...*servers.Etcd) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.URL())
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestChangesGoOnWhenTheLeaderIsKilled(t *testing.T) {
	members := startEtcd(t, 3)
	s := openAt(t, Config{}, members...)
	f := storetest.Follow(t, s)
	write := func(name, network string) { // also while another leader is elected, as on a busy machine
		t.Helper()
		eventually(t, func() error {
			_, err := s.Write(t.Context(), configstore.Write{Object: cluster(name, network)})
			return err
		})
	}
	write("east", "a")
	f.AwaitClusters("east=a")

	leader := leaderOf(t, members)
	if err := members[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	write("east", "b")
	f.AwaitClusters("east=b")

	// Of three, one alone decides nothing: reading fails, and what stands stands.
	second := (leader + 1) % 3
	if err := members[second].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if status, _ := f.Status().Load(); status.Err == nil {
			return errors.New("no error from a cluster without a majority")
		}
		return nil
	})
	if _, err := s.Get(t.Context(), clusterKey("east")); err == nil || errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("get without a majority: %v; want why it fails", err)
	}
	if got := f.Clusters(); got != "east=b" {
		t.Errorf("without a majority the reader has %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	if err := members[leader].Start(ctx); err != nil {
		t.Fatal(err)
	}
	write("west", "a")
	f.AwaitClusters("east=b west=a")
}

func leaderOf(t *testing.T, members []*servers.Etcd) int {
	t.Helper()
	client := clientAt(t, members...)
	leader := 0
	eventually(t, func() error {
		for i, m := range members {
			status, err := client.Status(t.Context(), m.URL())
			if err != nil {
				return err
			}
			if status.Leader == status.Header.MemberId {
				leader = i
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}

// A server whose quota is used up refuses writes and is still read.
func TestAFullServerRefusesWritesAndIsRead(t *testing.T) {
	members := startEtcd(t, 1, "--quota-backend-bytes=2000000")
	s := openAt(t, Config{}, members...)
	f := storetest.Follow(t, s)
	storetest.Put(t, s, cluster("east", "a"))
	client := clientAt(t, members...)
	for range 10 {
		if _, err := client.Put(t.Context(), "others", strings.Repeat("x", 1<<20)); err != nil {
			break
		}
	}
	_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")})
	if err == nil || !strings.Contains(err.Error(), "database space exceeded") || !strings.Contains(err.Error(), "etcdctl alarm disarm") {
		t.Errorf("write: %v; want that there is no space, and what to do", err)
	}
	f.AwaitClusters("east=a")
	if all, _, err := s.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("list: %d objects, %v; want that reading goes on", len(all), err)
	}
	eventually(t, func() error {
		if status, _ := f.Status().Load(); status.Err != nil || !status.Synced {
			return fmt.Errorf("status %+v; want that watching goes on", status)
		}
		return nil
	})
}

func TestAKeyWhoseLeaseRunsOutIsDeleted(t *testing.T) {
	p := newPlace(t, &plainServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	f := storetest.Follow(t, s)
	lease, err := p.Admin.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"east", "west"} {
		key := p.Prefix + api.KeyPath(clusterKey(name))
		if _, err := p.Admin.Put(t.Context(), key, string(api.EncodeJSON(cluster(name, "a"))), clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	f.AwaitClusters("east=a west=a")
	storetest.Put(t, s, cluster("west", "b")) // written here, it does not go with the lease
	f.AwaitClusters("east=a west=b")
	if _, err := p.Admin.Revoke(t.Context(), lease.ID); err != nil { // as when it runs out
		t.Fatal(err)
	}
	f.AwaitClusters("west=b")
}

// The other way to put a server back: its data directory as it was. The cluster and its
// revisions are the same, and what was written since is not.
func TestADataDirectoryThatWasPutBack(t *testing.T) {
	members := startEtcd(t, 1)
	s := openAt(t, Config{}, members...)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	storetest.Put(t, s, cluster("east", "a"))
	copied := filepath.Join(t.TempDir(), "copy")
	if err := errors.Join(members[0].Stop(ctx), os.CopyFS(copied, os.DirFS(members[0].Data())), members[0].Start(ctx)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")})
		return err
	})
	storetest.Put(t, s, cluster("north", "a"))
	var version configstore.Version
	enough := errors.New("enough")
	if err := s.Watch(t.Context(), "", func(c configstore.Change) error { version = c.Version; return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if err := members[0].PutBack(ctx, copied); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"a", "b", "c"} {
		eventually(t, func() error {
			_, err := s.Write(t.Context(), configstore.Write{Object: cluster("north", network)})
			return err
		})
	}
	err := s.Watch(t.Context(), version, func(c configstore.Change) error {
		if !c.Full || len(c.Objects) != 2 {
			t.Errorf("first change %+v; want the full set of a server that is another", c)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}

// What was missed may be more than one message of the server holds: it then comes in
// fragments, which are one change.
func TestWhatComesInFragmentsIsOneChange(t *testing.T) {
	p := newPlace(t, &plainServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	storetest.Put(t, s, cluster("east", "a"))
	var version configstore.Version
	enough := errors.New("enough")
	if err := s.Watch(t.Context(), "", func(c configstore.Change) error { version = c.Version; return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	padding := strings.Repeat(" ", 700<<10)
	for batch := range 4 {
		var ops []clientv3.Op
		for i := range 2 {
			c := cluster(fmt.Sprintf("c%d-%d", batch, i), "a")
			ops = append(ops, clientv3.OpPut(p.Prefix+api.KeyPath(c.Key()), string(api.EncodeJSON(c))+padding))
		}
		if _, err := p.Admin.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Watch(t.Context(), version, func(c configstore.Change) error {
		if c.Full || len(c.Objects) != 8 {
			t.Errorf("first change: full %t, %d objects; want the 8 that were missed", c.Full, len(c.Objects))
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}

// A quiet store costs the server nothing but a sign of life every 10 s.
func TestAQuietWatchAsksNothing(t *testing.T) {
	p := newPlace(t, &secureServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	f := storetest.Follow(t, s)
	storetest.Put(t, s, cluster("east", "a"))
	f.AwaitClusters("east=a")
	time.Sleep(time.Second)
	before := p.Link.Traffic()
	begin := time.Now()
	time.Sleep(24 * time.Second)
	after, pings := p.Link.Traffic(), int64(time.Since(begin)/etcdclient.KeepaliveTime)+2
	if asked, sent := after.Requests-before.Requests, after.Sent-before.Sent; asked > pings || sent > 125*pings || after.Connections != before.Connections {
		t.Errorf("in 24 s or more: spoke %d times, sent %d bytes, opened %d connections; want a few pings", asked, sent, after.Connections-before.Connections)
	}
	if status, _ := f.Status().Load(); status.Err != nil {
		t.Errorf("status %+v", status)
	}
}

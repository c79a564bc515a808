package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
)

// stands holds an instance of orders to be in etcd for longer than leases last.
func stands(t *testing.T, f *follower, want string) {
	t.Helper()
	for end := time.Now().Add(3 * shortestTTL); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f.has() != want {
			t.Fatalf("there stand %q, want %q", f.has(), want)
		}
	}
}

// What was written stays when nothing more can be: it is true all the same.
func TestAServerThatIsFullKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{Args: []string{"--quota-backend-bytes=2000000"}})
	open := func(name, address string) *Source {
		return openAs(t, Config{Config: etcdclient.Config{Endpoints: []string{address}}, TTL: shortestTTL}, name)
	}
	link := serverstest.NewLink(t, etcd.Addr())
	s := open("r1", link.Addr())
	run(t, s.Run)
	s.Register(orders("a", "10.0.0.1:50002"), never(t))
	seen, other := follow(t, s), follow(t, open("r2", etcd.Addr()))
	other.await(t, "shop/orders/a=10.0.0.1:50002")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := 0; ; n++ {
		if _, err := client.Put(ctx, "other", strings.Repeat("x", 1<<20)); err != nil {
			break
		} else if n == 20 {
			t.Fatal("the server is not full after 20 MiB")
		}
	}
	s.Register(orders("b", "10.0.0.2:50002"), never(t))
	serverstest.Await(t, "the status says what to do", func() bool {
		status := seen.Status()
		return status.RefusedCount == 1 && strings.Contains(status.Refused[0].Err.Error(), "alarm disarm")
	})
	link.Refuse() // and the connection is lost, so that leases are asked for again
	if err := link.Mend(); err != nil {
		t.Fatal(err)
	}
	stands(t, other, "shop/orders/a=10.0.0.1:50002")
}

// A replica that starts asks whether others know what runs, or did until moments ago.
func TestWhoIsAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t, &secure)
	next := p.open(t)
	follow(t, next)
	if !next.Alone(t.Context()) {
		t.Error("not alone where there is nobody else")
	}
	c := p.config(t, p.Server.Addr(), p.user)
	c.TTL = 6 * time.Second
	s := openAs(t, c, "r0")
	end := run(t, s.Run)
	s.Settle()
	serverstest.Await(t, "the other is seen", func() bool { return !next.Alone(t.Context()) })
	time.Sleep(c.TTL) // it renews its lease
	if next.Alone(t.Context()) {
		t.Error("alone while the other is there")
	}
	end()
	c.TTL = 5 * time.Minute
	s = openAs(t, c, "r0")
	end = run(t, s.Run)
	s.Settle()
	serverstest.Await(t, "the other is seen again", func() bool { return !next.Alone(t.Context()) })
	gone := time.Now()
	end()
	serverstest.Await(t, "it is alone", func() bool { return next.Alone(t.Context()) })
	if took := time.Since(gone); took >= c.TTL || len(p.others(t)) != 1 {
		t.Errorf("it was alone %s after the end of the other, with leases of %s, and %v there", took, c.TTL, p.others(t))
	}
}

// others are the replicas that etcd has.
func (p *place) others(t *testing.T) (all []string) {
	answer, err := p.Admin.Get(t.Context(), rootOf(p.Prefix, "west")+replicas, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		all = append(all, string(kv.Value))
	}
	return all
}

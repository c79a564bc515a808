package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// disturbing is how long this machine stood still where that may have ended a lease.
const disturbing = time.Second

// stands holds an instance of orders to be in etcd for longer than leases last, and for as long
// again, some times, where this machine stood still, when a lease may run out.
func stands(t *testing.T, f *follower, want string, ttl time.Duration) {
	t.Helper()
	lasts := 2 * ttl
	watch := stalls.Begin(t)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		is, still := f.has(), watch.Longest(time.Now().Add(-lasts))
		switch {
		case is != want && still < disturbing:
			t.Fatalf("there stand %q, want %q", is, want)
		case is != want:
			t.Logf("there stand %q, want %q: nothing more can be written, and this machine stood still for %s", is, want, still)
			return
		case time.Since(begun) > lasts && still < disturbing, time.Since(begun) > stalls.Tries*lasts:
			return
		}
	}
}

// What was written stays when nothing more can be: it is true all the same.
func TestAServerThatIsFullKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{Args: []string{"--quota-backend-bytes=2000000"}})
	open := func(name, address string) *Source {
		return openAs(t, Config{Config: etcdclient.Config{Endpoints: []string{address}}, TTL: ttl}, name)
	}
	link := serverstest.NewLink(t, etcd.Addr())
	s := open("r1", link.Addr())
	run(t, s.Run)
	s.registers(orders("a", "10.0.0.1:50002"), never(t))
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
	s.registers(orders("b", "10.0.0.2:50002"), never(t))
	serverstest.Await(t, "the status says what to do", func() bool {
		status := seen.Status()
		return status.RefusedCount == 1 && strings.Contains(status.Refused[0].Err.Error(), "alarm disarm")
	})
	link.Refuse() // and the connection is lost, so that leases are asked for again
	if err := link.Mend(); err != nil {
		t.Fatal(err)
	}
	stands(t, other, "shop/orders/a=10.0.0.1:50002", ttl)
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
	c.TTL = 16 * time.Second
	s := openAs(t, c, "r0")
	end := run(t, s.Run)
	s.Settle()
	serverstest.Await(t, "the other is seen", func() bool { return !next.Alone(t.Context()) })
	watch := stalls.Begin(t)
	for begun := time.Now(); time.Since(begun) < c.TTL*3/4; time.Sleep(100 * time.Millisecond) { // it renews its lease
		if next.Alone(t.Context()) && watch.Longest(begun) < disturbing {
			t.Fatal("alone while the other is there")
		}
	}
	gone := time.Now()
	end()
	serverstest.Await(t, "it is alone", func() bool { return next.Alone(t.Context()) })
	others := p.others(t)
	if took := time.Since(gone); took < c.TTL*3/4 && len(others) != 1 || took >= c.TTL*3/4 && watch.Longest(gone) < disturbing {
		t.Errorf("it was alone %s after the end of the other, with leases of %s, and %v there; want the other's, which lasts on", took, c.TTL, others)
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

package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestSource(t *testing.T) {
	instancestest.Run(t, func(t *testing.T) instancestest.Backend { return backend(newPlace(t, &secure)) })
}

func TestSourceWithoutUsersAndTLS(t *testing.T) {
	instancestest.Run(t, func(t *testing.T) instancestest.Backend { return backend(newPlace(t, &plain)) })
}

func backend(p *place) instancestest.Backend {
	b := instancestest.Backend{
		Open: func(t testing.TB) instances.Source {
			s := p.open(t)
			// The connection is the source's and not of one Watch. Where there is none to be had,
			// that shows at once.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = s.client.Get(ctx, s.root)
			return s
		},
		Put: p.put, Drain: p.drain, Delete: p.delete, Spoil: p.spoil,
		Fail: p.Link.Fail, Cut: p.Link.Cut, Slow: p.Link.Slow, Restart: p.Restart, Forget: p.Compact,
		Servers: []string{p.Link.Addr()}, Many: 10_000,
	}
	if p.Secure {
		b.Denied = func(t testing.TB) instances.Source {
			c := p.config(t, p.Link.Addr(), p.user)
			c.Password = serverstest.Secret(t, wrongPassword)
			return openAs(t, c, "r1")
		}
		b.Secrets = []string{serverstest.Passwords, wrongPassword}
	}
	return b
}

// settle waits until the other replica has written what was registered with it.
func (p *place) settle(t testing.TB) {
	t.Helper()
	w := p.other(t)
	defer func() {
		if t.Failed() {
			w.telling.Lock()
			defer w.telling.Unlock()
			t.Logf("what fails: %v; to be written: %d", w.failing, len(w.registered.dirty))
		}
	}()
	serverstest.Await(t, "everything is written", func() bool {
		w.registered.mu.Lock()
		waiting := len(w.registered.dirty)
		w.registered.mu.Unlock()
		if waiting > 0 {
			return false
		}
		stored := p.stored(t)
		w.registered.mu.Lock()
		defer w.registered.mu.Unlock()
		if len(stored) < len(w.registered.held) {
			return false
		}
		for key := range stored {
			if w.registered.held[key] == nil && key != "shop/orders/bad" && key != "nonsense" && key != "shop/orders/no-lease" {
				return false
			}
		}
		for key, h := range w.registered.held {
			if stored[key] != encode(&h.instance, w.replica) {
				return false
			}
		}
		return true
	})
}

func (p *place) put(t testing.TB, all ...catalog.Instance) {
	t.Helper()
	for _, i := range all {
		p.other(t).registers(i, func() {})
	}
	p.settle(t)
}

func (p *place) drain(t testing.TB, i catalog.Instance) {
	t.Helper()
	p.other(t).Drain(key(i))
	p.settle(t)
}

func (p *place) delete(t testing.TB, all ...catalog.Instance) {
	t.Helper()
	for _, i := range all {
		p.other(t).Withdraw(key(i))
	}
	p.settle(t)
}

func (p *place) spoil(t testing.TB) (words []string, mend func()) {
	t.Helper()
	lease, err := p.Admin.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	root := rootOf(p.Prefix, "west")
	for key, text := range map[string]string{
		"shop/orders/bad":      `{"address": "10.0.0.1"}`,
		"nonsense":             `{"address": "10.0.0.1:50002"}`,
		"shop/orders/no-lease": `{"address": "10.0.0.1:50002"}`,
	} {
		var options []clientv3.OpOption
		if key != "shop/orders/no-lease" {
			options = append(options, clientv3.WithLease(lease.ID))
		}
		if _, err := p.Admin.Put(t.Context(), root+key, text, options...); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"key shop/orders/bad", "key nonsense", "no lease"}, func() {
		_, err := p.Admin.Revoke(context.Background(), lease.ID)
		_, deleteErr := p.Admin.Delete(context.Background(), root+"shop/orders/no-lease")
		if err := errors.Join(err, deleteErr); err != nil {
			t.Fatal(err)
		}
	}
}

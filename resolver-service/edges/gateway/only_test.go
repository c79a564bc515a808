package gateway

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// An address of an app's own takes who names nobody, and leads to no other app.
func TestAnAddressOfAnAppsOwn(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		table := exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}, "ledger": {tlsBackend(t, "ledger")}})
		gw := serve(t, Config{Peers: tlsPeers(t, "resolver")}, table, with)
		l := listen(t)
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- gw.ServeApp(ctx, l, catalog.App{Namespace: "shop", ID: "orders"}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		own := l.Addr().String()
		for _, c := range []struct {
			host string // crypto/tls sends none that is empty or an address
			want string // the backend, or the alert
		}{
			{"", "orders"},
			{"127.0.0.1", "orders"},
			{ordersHost, "orders"},
			{"0." + ordersHost, "orders"},
			{"orders.shop.isthmus.internal", "orders"},
			{ledgerHost, "unrecognized name"},
			{"nobody.shop.east.isthmus.internal", "unrecognized name"},
			{peerHost, "unrecognized name"},
		} {
			got, err := callUnnamed(t, own, c.host)
			if got != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q: answered by %q, %v, want %s", c.host, got, err, c.want)
			}
		}
		if _, err := callUnnamed(t, gw.addr, ""); err == nil {
			t.Error("the gateway itself takes a connection without a name")
		}
		gw.table.Store(exports(2, map[string][]string{"ledger": {tlsBackend(t, "ledger")}}))
		if _, err := callUnnamed(t, own, ""); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("the app is exported no more: %v, want unrecognized name", err)
		}
	})
}

// callUnnamed is call for a client that does not check whom it has reached by a name, as
// daprd does not.
func callUnnamed(t *testing.T, addr, host string) (name string, err error) {
	t.Helper()
	return readLine(tls.Client(dialTCP(t, addr), &tls.Config{ServerName: host, InsecureSkipVerify: true}))
}

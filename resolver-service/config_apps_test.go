package resolverservice

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestAddressesOfOneAppEach(t *testing.T) {
	const good = "cluster: west\nidentity: {insecure: true}\n"
	cfg, err := Parse("isthmus.yaml", []byte(good+"listen: {apps: [{address: \"10.0.0.7:50002\", app: shop/orders}]}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []AppListener{{Address: "10.0.0.7:50002", App: "shop/orders"}}
	if !reflect.DeepEqual(cfg.Listen.Apps, want) || cfg.Listen.Apps[0].app() != (catalog.App{Namespace: "shop", ID: "orders"}) {
		t.Errorf("got %+v, want %+v", cfg.Listen.Apps, want)
	}
	for text, want := range map[string]string{
		"listen: {apps: [{app: shop/orders}]}":                                                                           `listen.apps[0]: has no address; write {address: "10.0.0.7:50002", app: shop/orders}`,
		"listen: {apps: [{address: 7, app: shop/orders}]}":                                                               `listen.apps[0]: "7" is no address; write host:port`,
		"listen: {apps: [{address: '10.0.0.7:50002'}]}":                                                                  `listen.apps[0]: leads to no app: `,
		"listen: {apps: [{address: '10.0.0.7:50002', app: orders}]}":                                                     `write app: namespace/app-id, such as shop/orders`,
		"listen: {apps: [{address: '10.0.0.7:50002', ap: shop/orders}]}":                                                 `listen.apps[0].ap: unknown field; did you mean "app"?`,
		"listen: {apps: [{address: '10.0.0.7:50002', app: shop/orders}, {address: '10.0.0.7:50002', app: shop/ledger}]}": `listen.apps[1]: has the address of listen.apps[0], 10.0.0.7:50002; give each app`,
	} {
		if _, err := Parse("isthmus.yaml", []byte(good+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A listener of one app takes who names nobody, once the app is exported and there.
func TestAListenerOfOneApp(t *testing.T) {
	cfg := configOf(t, "west", nil)
	cfg.Listen.Apps = []AppListener{{Address: "127.0.0.1:0", App: orders.String()}}
	west := start(t, cfg, nil)
	handshake := func() error {
		conn, err := tls.Dial("tcp", west.Addr(appListener(0)).String(), &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("an app that is not exported: %v, want unrecognized name", err)
	}
	west.apply(export("east"))
	west.within("it is exported, and no instance is there", func() bool {
		err := handshake()
		return err != nil && strings.Contains(err.Error(), "internal error")
	})
}

package resolverservice

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/consulapi"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// consulOf is a configuration with the Consul API, for checkout and orders.
func consulOf(t *testing.T, dir, more string) (*Config, error) {
	t.Helper()
	var tokens []string
	for _, app := range []string{"checkout", "orders"} {
		path := filepath.Join(dir, app+".token")
		if err := os.WriteFile(path, []byte(app+"-token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, fmt.Sprintf("{app: shop/%s, token: {file: %s}}", app, path))
	}
	return Parse("isthmus.yaml", []byte(fmt.Sprintf("cluster: west\ndataDir: %s/data\nidentity: {insecure: true}\n"+
		"listen: {resolver: '127.0.0.1:0', admin: '127.0.0.1:0', consul: '127.0.0.1:0'}\nconsul:\n  tokens: [%s]\n%s", dir, strings.Join(tokens, ", "), more)))
}

func (r *running) consulClient(app, scheme string) *api.Client {
	r.t.Helper()
	c := api.Config{Address: r.Addr("consul").String(), Scheme: scheme, Token: app + "-token", Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate signs itself
	}}
	client, err := api.NewClient(&c)
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

// TestConsulsAPIIsAPartOfTheService: what registers there is found by it and by others, what
// registers elsewhere is found there, and a restart keeps it.
func TestConsulsAPIIsAPartOfTheService(t *testing.T) {
	dir := t.TempDir()
	cert := writeCertificate(t, dir, "localhost")
	cfg, err := consulOf(t, dir, fmt.Sprintf("  tls: {cert: %s, key: %s}\n", cert.Cert, cert.Key))
	if err != nil {
		t.Fatal(err)
	}
	west := start(t, cfg, nil)
	west.sidecar(checkout, "127.0.0.22:50002")
	o := west.consulClient("orders", "https")
	if err := o.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", Address: "127.0.0.21", Port: 80, Meta: map[string]string{"DAPR_PORT": "50002"}}); err != nil {
		t.Fatal(err)
	}
	if d := west.topology.Resolve(checkout, orders); d.Address != "127.0.0.21:50002" {
		t.Errorf("checkout is led to %+v", d)
	}
	found := func(west *running, service, want string) {
		t.Helper()
		all, _, err := west.consulClient("checkout", "https").Health().Service(service, "", true, nil)
		if err != nil || len(all) != 1 || all[0].Service.Address+":"+all[0].Service.Meta["DAPR_PORT"] != want {
			t.Errorf("%s: %v %v, want %s", service, all, err, want)
		}
	}
	found(west, "orders", "127.0.0.21:50002")
	found(west, "checkout", "127.0.0.22:50002")
	if err := west.stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, cfg, nil)
	found(again, "orders", "127.0.0.21:50002")
}

// TestAnAppIsRefusedWhereAnotherAppsStreamIs: a service that is registered at the address of another
// app's open stream is refused, whoever may register there, and views stay as they are.
func TestAnAppIsRefusedWhereAnotherAppsStreamIs(t *testing.T) {
	cfg, err := consulOf(t, t.TempDir(), "instances: {delegates: [{networks: [127.0.0.0/8], apps: [shop/orders]}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	var log logged.Buffer
	west := launchWith(t, cfg, nil, slog.New(slog.NewTextHandler(&log, nil)))
	west.within("ready", func() bool { code, _ := west.get("/readyz"); return code == http.StatusOK })
	for _, at := range []string{"127.0.0.22", "192.0.2.7"} { // which is this machine's, and which a delegate may name
		west.sidecar(checkout, at+":50002")
		register := func(app, port string) error {
			return west.consulClient(app, "http").Agent().ServiceRegister(&api.AgentServiceRegistration{
				Name: app, Address: at, Port: 80, Meta: map[string]string{"DAPR_PORT": port},
			})
		}
		var status api.StatusError
		if err := register("orders", "50002"); !errors.As(err, &status) || status.Code != http.StatusForbidden ||
			!strings.Contains(status.Body, "another app's sidecar has registered that address itself") || strings.Contains(status.Body, "checkout") {
			t.Errorf("at %s: %v; want it forbidden, and not said whose it is", at, err)
		}
		if d := west.topology.Resolve(checkout, orders); d.Address != "" {
			t.Errorf("checkout is led to %+v", d)
		}
		if err := register("checkout", "50002"); err != nil && at == "127.0.0.22" {
			t.Errorf("its own app at %s: %v", at, err)
		}
		if err := register("orders", "50003"); err != nil {
			t.Errorf("at another port of %s: %v", at, err)
		}
		if d := west.topology.Resolve(checkout, orders); d.Address != at+":50003" {
			t.Errorf("checkout is led to %+v", d)
		}
		if err := west.consulClient("orders", "http").Agent().ServiceDeregister("orders"); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "refused a registration: another app has registered that address itself") != 1 || !strings.Contains(got, "holder=shop/checkout") {
		t.Errorf("the log says\n%s", got) // once in ten seconds for each app
	}
}

func TestConsulsSettingsAreChecked(t *testing.T) {
	for more, want := range map[string]string{
		"  node: x\n":             "",
		"  anonymous: checkout\n": "consul.anonymous: app \"checkout\": want namespace/app-id; write namespace/app-id, such as shop/checkout",
		"  maxConnections: -1\n":  "consul.maxConnections: -1 is out of bounds",
		"  tls: {cert: x}\n":      "consul.tls: cert and key go together",
		"  token: x\n":            `consul.token: unknown field; did you mean "tokens"?`,
		"replicas: {name: a}\nstore: {file: {path: .}}\n": "replicas",
	} {
		_, err := consulOf(t, t.TempDir(), more)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", more, err, want)
		}
	}
}

// TestARestartTakesNothingBack: an app registers once more with another replica while the first
// is away, and what the first has kept does not come over that.
func TestARestartTakesNothingBack(t *testing.T) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	replica := func(name string) *Config {
		cfg, err := consulOf(t, t.TempDir(), fmt.Sprintf("store: {etcd: {endpoints: ['%s']}}\ninstances: {etcd: {endpoints: ['%s']}}\nreplicas: {name: %s}\n", etcd.Addr(), etcd.Addr(), name))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	firstConfig := replica("r1")
	first, second := start(t, firstConfig, nil), start(t, replica("r2"), nil)
	register := func(r *running, address string) {
		t.Helper()
		service := &api.AgentServiceRegistration{Name: "orders", Address: address, Port: 50002}
		if err := r.consulClient("orders", "http").Agent().ServiceRegister(service); err != nil {
			t.Fatal(err)
		}
	}
	leads := func(r *running, address string) {
		t.Helper()
		r.within("checkout is led to "+address, func() bool { return r.topology.Resolve(checkout, orders).Address == address+":50002" })
	}
	register(first, "127.0.0.21")
	leads(second, "127.0.0.21")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	register(second, "127.0.0.22")
	again := start(t, firstConfig, nil)
	registered := func(r *running) (n uint32) {
		for _, source := range r.status().GetSources() {
			if source.GetName() == consulapi.Source {
				n = source.GetInstances()
			}
		}
		return n
	}
	again.within("it has let go", func() bool { return registered(again) == 0 })
	leads(again, "127.0.0.22")
	register(again, "127.0.0.23") // and whoever comes last has it
	leads(second, "127.0.0.23")
	second.within("it has let go", func() bool { return registered(second) == 0 })
	if n := registered(again); n != 1 {
		t.Errorf("%d services are registered where orders came last", n)
	}
}

// TestConsulsAPITakesANewCertificate, keeps the one before where that can't be used, and says so.
func TestConsulsAPITakesANewCertificate(t *testing.T) {
	dir := t.TempDir()
	cert := writeCertificate(t, dir, "first")
	cfg, err := consulOf(t, dir, fmt.Sprintf("  tls: {cert: %s, key: %s}\n", cert.Cert, cert.Key))
	if err != nil {
		t.Fatal(err)
	}
	west := start(t, cfg, nil)
	shown := func() string {
		t.Helper()
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the test looks at the certificate itself
		c, err := d.DialContext(t.Context(), "tcp", west.Addr("consul").String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if err := os.WriteFile(cert.Key, []byte("half of"), 0o600); err != nil {
		t.Fatal(err)
	}
	west.failing("consul certificate", cert.Key) // though nobody has connected since
	if got := shown(); got != "first" {
		t.Errorf("with a broken file the certificate %s is shown", got)
	}
	writeCertificate(t, dir, "second")
	west.within("the second certificate", func() bool { return shown() == "second" })
	west.renewed("consul certificate")
}

// TestARestartWithdrawsNothingByConsulsAPI: a peer is slow to say what it exports, and nobody
// is told before the service has given up on it that there is nothing. Who registers is not
// held up.
func TestARestartWithdrawsNothingByConsulsAPI(t *testing.T) {
	slow, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	cfg, err := consulOf(t, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	west := start(t, cfg, nil)
	west.apply(clusterAt("east", slow.Addr(), "1m") + "---\n" + selectsOrders)
	if err := west.stop(); err != nil {
		t.Fatal(err)
	}
	again := launch(t, cfg, nil)
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, o := range []*api.QueryOptions{nil, {WaitIndex: 1, WaitTime: 9 * time.Minute}} {
		asking.Go(func() {
			err := errors.New("No cluster leader")
			for err != nil && strings.Contains(err.Error(), "No cluster leader") {
				_, _, err = again.consulClient("checkout", "http").Health().Service("orders", "", true, o)
			}
			select {
			case <-again.sources.settled:
			default:
				t.Errorf("%+v: answered before the service had settled", o)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	c := again.consulClient("checkout", "http").Agent()
	if err := c.ServiceRegister(&api.AgentServiceRegistration{Name: "checkout", Port: 1, Check: &api.AgentServiceCheck{TTL: "1h"}}); err != nil {
		t.Error(err)
	}
	if err := c.UpdateTTL("service:checkout", "", "pass"); err != nil {
		t.Error(err)
	}
	if err := c.ServiceDeregister("checkout"); err != nil {
		t.Error(err)
	}
}

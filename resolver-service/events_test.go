package resolverservice

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// eventLine is an event as operators read it, but for its times.
func eventLine(e *events.Event) string {
	line := e.Level.String() + " " + e.Message
	for _, f := range e.Fields {
		line += " " + f.Name + "=" + f.Value
	}
	return line
}

// tells waits until events tell each of these, in any order, and no sooner than the event with the
// number that [running.now] returned.
func (r *running) tells(since uint64, wants ...string) {
	r.t.Helper()
	var lines []string
	for _, want := range wants {
		holds := regexp.MustCompile("^" + want)
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			lines = nil
			for _, e := range r.events.After(since, time.Time{}) {
				lines = append(lines, eventLine(&e))
			}
			if found := strings.Join(lines, "\n"); regexp.MustCompile("(?m)" + holds.String()).MatchString(found) {
				break
			}
			if time.Now().After(end) {
				r.t.Fatalf("no event %q among\n%s", want, strings.Join(lines, "\n"))
			}
		}
	}
}

// now is the number of the newest event.
func (r *running) now() uint64 {
	number, _ := r.events.Latest().Load()
	return number
}

// visits has a sidecar of an app come, and go once the function is called.
func (r *running) visits(app catalog.App, address string) (leave func()) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	stream, err := v1alpha1.NewResolverClient(r.connect(app)).Watch(ctx)
	if err == nil {
		hello := &v1alpha1.Hello{App: wireApp(app), Instance: &v1alpha1.Instance{Id: address, Address: address}}
		err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return leave
}

// What happens to a cluster and its peer, and what its events tell of it.
func TestEventsTellWhatHappens(t *testing.T) {
	ca := identitytest.NewCA(t)
	eastConfig := configOf(t, "east", ca)
	eastConfig.Listen.Gateway = freeAddress(t)
	east, west := start(t, eastConfig, ca), start(t, configOf(t, "west", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	gateway := eastConfig.Listen.Gateway

	t.Log("an operator writes objects")
	west.apply(clusterAt("east", east.Addr("gateway"), "20s") + "---\n" + selectsOrders)
	west.tells(0, `INFO objects written objects=2 by=\S*isthmus-cli first=Cluster east created \S+, AppEndpoints shop/checkout created`,
		"INFO exports of a peer received peer=east exports=1")
	for _, e := range west.events.After(0, time.Time{}) {
		if line := eventLine(&e); strings.Contains(line, "objects changed in the store") {
			t.Errorf("what an operator wrote is told of a second time: %s", line)
		}
	}

	t.Log("the last instance of an app that is called goes, and one comes")
	leave := west.visits(orders, "10.0.0.1:50002")
	since := west.now()
	leave()
	west.tells(since, "INFO sidecar left app=shop/orders from=127.0.0.1 registered=true", "WARN app has lost its last ready instance in this cluster app=shop/orders draining=0")
	leave = west.visits(orders, "10.0.0.1:50002")
	west.tells(since, "INFO sidecar connected app=shop/orders", "INFO app has ready instances in this cluster again app=shop/orders ready=1")
	leave()

	t.Log("a sidecar comes and goes all the time")
	since = west.now()
	for range 30 {
		west.visits(checkout, "10.0.0.2:50002")()
	}
	west.within("churn is summed", func() bool {
		came, left, lines := 0, 0, 0
		for _, e := range west.events.After(since, time.Time{}) {
			switch line := eventLine(&e); {
			case strings.HasPrefix(line, "INFO sidecar connected app=shop/checkout"):
				came, lines = came+e.Count, lines+1
			case strings.HasPrefix(line, "INFO sidecar left app=shop/checkout"):
				left, lines = left+e.Count, lines+1
			}
		}
		return came == 30 && left == 30 && lines < 20
	})

	t.Log("calls and registrations are refused")
	if _, err := v1alpha1.NewStatusClient(west.connect(checkout)).Status(t.Context(), &v1alpha1.StatusRequest{}); err == nil {
		t.Error("a sidecar was told the status")
	}
	if got := west.registers(orders, west.Addr("resolver").String()); got.Code() == codes.OK {
		t.Error("the service's own address was taken")
	}
	west.tells(0, `WARN refused a call listener=resolver method=/isthmus.v1alpha1.Status/Status caller=\S*shop/checkout`, "WARN refused a sidecar client=shop/orders err=.*"+west.Addr("resolver").String())

	t.Log("the peer goes, and is back")
	since = west.now()
	if err := east.stop(); err != nil {
		t.Fatal(err)
	}
	west.tells(since, "WARN peer unreachable; .* peer=east", "WARN gateway of a peer is not reached peer=east gateway="+gateway+" err=.*refused",
		"WARN lease of a peer ended; .* peer=east why=.*its gateway "+gateway+" refuses connections")
	since = west.now()
	start(t, eastConfig, ca)
	west.tells(since, "INFO gateway of a peer answers again peer=east gateway="+gateway, "INFO peer is back; routes to it are in use again peer=east")
}

func TestEventsTellOfChangesPastTheService(t *testing.T) {
	cfg := configOf(t, "west", nil)
	dir := t.TempDir()
	cfg.Store = Store{File: &file.Config{Path: dir}}
	path := filepath.Join(dir, "shop.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, ".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, ".new"), path); err != nil {
			t.Fatal(err)
		}
	}
	write(selectsOrders)
	west := start(t, cfg, nil)
	write(strings.ReplaceAll(selectsOrders, "app: orders", "app: ledger") + "---\n" + clusterOnly("east"))
	west.tells(0, `INFO objects changed in the store objects=2 first=(AppEndpoints shop/checkout changed \S+|Cluster east created \S+), `)
	write(clusterOnly("east"))
	west.tells(0, `INFO objects changed in the store objects=1 first=AppEndpoints shop/checkout deleted$`)
	write(strings.ReplaceAll(selectsOrders, "endpoints", "endpoint"))
	west.tells(0, `WARN object refused; .*object=.*did you mean "endpoints"`)
	for _, e := range west.events.After(0, time.Time{}) {
		if line := eventLine(&e); strings.Contains(line, "orders") && strings.Contains(line, "created") {
			t.Errorf("what there was at the start is told of: %s", line)
		}
	}
}

func TestEventsTellOfTroubleWithStoresAndSources(t *testing.T) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	link, err := servers.NewProxy(etcd.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	cfg, err := Parse("isthmus.yaml", fmt.Appendf(nil, "cluster: west\ndataDir: %s\nidentity: {insecure: true}\n"+
		"store: {etcd: {endpoints: ['%s']}}\ninstances: {etcd: {endpoints: ['%[2]s'], ttl: 4s}}\nreplicas: {name: resolver-1}\n"+
		"listen: {resolver: '127.0.0.1:0', admin: '127.0.0.1:0'}\n", filepath.Join(t.TempDir(), "data"), link.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	west := start(t, cfg, nil)
	since := west.now()
	link.Refuse()
	west.tells(since, "WARN config store can't be watched; .* err=", "WARN source of instances can't be read; .* err=")
	since = west.now()
	if err := link.Mend(); err != nil {
		t.Fatal(err)
	}
	west.tells(since, "INFO config store is back away=", "INFO source of instances is back .*away=")
}

func TestEventsTellThatACertificateHasExpired(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg := configOf(t, "west", ca)
	*cfg.Identity.Files = *ca.Config(identity.ServiceApp("", "west"), func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(4*time.Second)
	}).Files
	west := launch(t, cfg, ca)
	west.tells(0, `WARN certificate is about to expire and was not renewed; .* app=isthmus-system/isthmus-west`,
		`ERROR certificate has expired; connections fail until it is renewed app=isthmus-system/isthmus-west`)
}

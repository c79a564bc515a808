package resolverservice

import (
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/answers"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// checks are the results of all checks of a service, without those that are OK.
func (r *running) checks() []check.Result { return r.checksOf(answers.Limit{}) }

// checksOf are those of a peer or an app.
func (r *running) checksOf(limit answers.Limit) (faults []check.Result) {
	r.t.Helper()
	facts, err := r.Service.checks.Facts(r.t.Context(), r.status(), limit)
	if err != nil {
		r.t.Fatal(err)
	}
	err = check.Run(r.t.Context(), facts, func(results []check.Result) error {
		for _, one := range results {
			if one.Level != check.OK {
				faults = append(faults, one)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	sorted := check.Messages(faults)
	check.Sort(sorted)
	for i, m := range sorted {
		faults[i] = check.Result{Check: m.GetCheck(), Level: check.Level(m.GetLevel()), Kind: m.GetKind(), Name: m.GetName(), Found: m.GetFound(), Fix: m.GetFix()}
	}
	return faults
}

// finds waits until a service finds these faults, each as "check level name", and no others of
// gateways and peers.
func (r *running) finds(faults ...string) {
	r.t.Helper()
	r.findsOf(answers.Limit{}, faults...)
}

// findsOf is finds for a peer or an app.
func (r *running) findsOf(limit answers.Limit, faults ...string) {
	r.t.Helper()
	var last []check.Result
	defer func() { r.t.Logf("%+v", last) }()
	r.within(strings.Join(faults, ", "), func() bool {
		last = r.checksOf(limit)
		var found []string
		for _, one := range last {
			found = append(found, fmt.Sprint(one.Check, " ", one.Level, " ", one.Name))
		}
		return strings.Join(found, "\n") == strings.Join(faults, "\n")
	})
}

// eastAt is the subject of a fault at a gateway of east.
func eastAt(gateway net.Addr) string { return "east " + gateway.String() }

// listening is an address where something listens, for sidecars.
func listening(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// linkedPair is west and east, linked both ways, with a sidecar each. All is well.
func linkedPair(t *testing.T) (west, east *running) {
	t.Helper()
	ca := identitytest.NewCA(t, identitytest.LongLived)
	west, east = start(t, configOf(t, "west", ca), ca), start(t, configOf(t, "east", ca), ca)
	peersLinked(t, west, east)
	return west, east
}

func peersLinked(t *testing.T, west, east *running) {
	t.Helper()
	east.sidecar(orders, listening(t))
	west.sidecar(checkout, listening(t))
	east.apply(export("west") + "---\n" + clusterAt("west", west.Addr("gateway"), "1m"))
	west.apply(clusterAt("east", east.Addr("gateway"), "1m") + "---\n" + selectsOrders)
}

func TestChecksFindNothingWhereAllIsWell(t *testing.T) {
	west, east := linkedPair(t)
	west.finds()
	east.finds()
	stream, err := v1alpha1.NewStatusClient(west.connect(identity.CLIApp(""))).Check(t.Context(), &v1alpha1.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.GetCluster() != "west" || time.Since(time.UnixMilli(first.GetNowUnixMs())).Abs() > time.Minute {
		t.Fatalf("first message %v, %v", first, err)
	}
	asked := map[string]bool{}
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range m.GetResults() {
			asked[r.GetCheck()] = true
		}
	}
	for _, name := range []string{"store-writes", "gateway-port", "gateway-mtu", "peer-roots-there", "peer-link", "certificates"} {
		if !asked[name] {
			t.Errorf("no result of %s", name)
		}
	}
	if asked["service-reachable"] {
		t.Error("the service makes a check of the command")
	}
}

// box is what stands between two clusters, at an address of its own.
func box(t *testing.T, serve func(client net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return l.Addr()
}

// passOn has a box connect to a gateway; first may change what a client has sent first. Where
// that is nothing, nothing is passed on.
func passOn(to net.Addr, first func(hello []byte) []byte) func(net.Conn) {
	return func(client net.Conn) {
		header := make([]byte, 5)
		if _, err := io.ReadFull(client, header); err != nil {
			return
		}
		hello := append(header, make([]byte, binary.BigEndian.Uint16(header[3:]))...)
		if _, err := io.ReadFull(client, hello[5:]); err != nil {
			return
		}
		hello = first(hello)
		if hello == nil {
			io.Copy(io.Discard, client)
			return
		}
		server, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		defer server.Close()
		server.Write(hello)
		go func() {
			io.Copy(server, client)
			server.Close()
		}()
		io.Copy(client, server)
	}
}

// unnamed is a ClientHello without its server name.
func unnamed(hello []byte) []byte {
	body := hello[5+4+2+32:] // record, message, version, random
	at := len(hello) - len(body)
	at += 1 + int(hello[at])                                 // session
	at += 2 + int(binary.BigEndian.Uint16(hello[at:]))       // suites
	at += 1 + int(hello[at])                                 // compression
	extensions := at                                         // where their length stands
	for at += 2; binary.BigEndian.Uint16(hello[at:]) != 0; { // server_name
		at += 4 + int(binary.BigEndian.Uint16(hello[at+2:]))
	}
	size := 4 + int(binary.BigEndian.Uint16(hello[at+2:]))
	out := append(append([]byte{}, hello[:at]...), hello[at+size:]...)
	shrink := func(at int) { binary.BigEndian.PutUint16(out[at:], binary.BigEndian.Uint16(out[at:])-uint16(size)) }
	shrink(3)
	shrink(5 + 2) // of a length in three bytes, the lower two
	shrink(extensions)
	return out
}

func TestChecksFindWhatIsOnTheWayToAGateway(t *testing.T) {
	west, east := linkedPair(t)
	lb := httptest.NewUnstartedServer(http.NotFoundHandler())
	lb.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	lb.StartTLS()
	t.Cleanup(lb.Close)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	closed, err := net.ResolveTCPAddr("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	gateway := east.Addr("gateway")
	for _, c := range []struct {
		check string
		at    net.Addr
	}{
		{"gateway-port", closed},
		{"gateway-port", box(t, func(c net.Conn) { io.Copy(io.Discard, c) })},  // silent
		{"gateway-port", box(t, func(c net.Conn) { c.Read(make([]byte, 1)) })}, // hangs up
		{"gateway-mtu", box(t, passOn(gateway, func(b []byte) []byte {
			if len(b) > 1400 {
				return nil
			}
			return b
		}))},
		{"gateway-proxy-protocol", box(t, passOn(gateway, func(b []byte) []byte {
			return append([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1234 15443\r\n"), b...)
		}))},
		{"gateway-server-name", box(t, passOn(gateway, unnamed))},
		{"gateway-tls", lb.Listener.Addr()},
		{"gateway-tls", web.Listener.Addr()},
		{"peer-name", west.Addr("gateway")}, // leads back here
	} {
		west.apply(clusterAt("east", c.at, "1m"))
		if c.check == "peer-name" {
			west.within("found", func() bool {
				return strings.Contains(fmt.Sprint(west.checks()), "this cluster's own gateway")
			})
			continue
		}
		west.finds(c.check + " fail " + eastAt(c.at))
	}
	west.apply(clusterAt("east", gateway, "1m"))
	west.finds()
}

func TestChecksFindAGatewayOfSeveral(t *testing.T) {
	west, east := linkedPair(t)
	closed := freeAddress(t)
	west.apply(strings.Replace(clusterAt("east", east.Addr("gateway"), "1m"), "gateways: [", "gateways: [{address: '"+closed+"'}, ", 1))
	west.finds("gateway-port warn east " + closed)
}

func TestChecksFindAnotherDomain(t *testing.T) {
	ca := identitytest.NewCA(t, identitytest.LongLived)
	cfg := configOf(t, "east", ca)
	cfg.Domain = "example.internal"
	west, east := start(t, configOf(t, "west", ca), ca), start(t, cfg, ca)
	peersLinked(t, west, east)
	west.finds("peer-domain fail " + eastAt(east.Addr("gateway")))
}

func TestChecksFindWrongAndDoubledNames(t *testing.T) {
	ca := identitytest.NewCA(t, identitytest.LongLived)
	west, east, other := start(t, configOf(t, "west", ca), ca), start(t, configOf(t, "east", ca), ca), start(t, configOf(t, "west", ca), ca)
	peersLinked(t, west, east)
	west.apply(clusterAt("north", east.Addr("gateway"), "1m") + "---\n" + clusterAt("south", other.Addr("gateway"), "1m"))
	west.finds("peer-name fail north "+east.Addr("gateway").String(), "peer-name fail south "+other.Addr("gateway").String())
	text := fmt.Sprint(west.checks())
	for _, want := range []string{"leads to cluster east, and its Cluster object is named north", "the cluster there is named west, as this one is"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestChecksFindAPeerWithoutAnObjectForUs(t *testing.T) {
	ca := identitytest.NewCA(t, identitytest.LongLived)
	west, east := start(t, configOf(t, "west", ca), ca), start(t, configOf(t, "east", ca), ca)
	west.apply(clusterAt("east", east.Addr("gateway"), "1m"))
	west.finds("peer-roots-there fail " + eastAt(east.Addr("gateway")))
	if text := fmt.Sprint(west.checks()); !strings.Contains(text, "see that Cluster west exists there") {
		t.Errorf("nothing of a Cluster object in %s", text)
	}
}

func TestChecksFindMissingRoots(t *testing.T) {
	westCA, eastCA := identitytest.NewCA(t, identitytest.LongLived), identitytest.NewCA(t, identitytest.LongLived)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
	peersLinked(t, west, east)
	gateway := eastAt(east.Addr("gateway"))
	west.within("both", func() bool {
		text := fmt.Sprint(west.checks())
		return strings.Contains(text, "{peer-roots-here fail gateway "+gateway) && strings.Contains(text, "{peer-roots-there fail gateway "+gateway)
	})
	east.apply(trusting("west", west.Addr("gateway"), westCA.PEM()))
	west.within("roots of east alone", func() bool {
		text := fmt.Sprint(west.checks())
		return strings.Contains(text, "{peer-roots-here fail gateway "+gateway) && !strings.Contains(text, "peer-roots-there")
	})
	west.apply(trusting("east", east.Addr("gateway"), eastCA.PEM()))
	west.finds()
	east.finds()
	east.apply(trusting("west", west.Addr("gateway"), eastCA.PEM()))
	west.within("roots of west", func() bool {
		text := fmt.Sprint(west.checks())
		return strings.Contains(text, "{peer-roots-there fail gateway "+gateway) && !strings.Contains(text, "peer-roots-here")
	})
}

func TestChecksFindWhatOneSideLacks(t *testing.T) {
	west, east := linkedPair(t)
	east.apply(clusterOnly("west"))
	west.finds() // nothing is exported to east
	west.apply(strings.ReplaceAll(export("east"), "orders", "checkout"))
	west.finds("peer-one-way warn east")
	east.apply(clusterAt("west", west.Addr("gateway"), "1m"))
	west.finds()

	west.apply(strings.ReplaceAll(export("east"), "orders", "ledger"))
	west.finds("export-instances warn AppExport shop/ledger")
	east.apply(export("north") + "---\n" + clusterOnly("north"))
	west.finds("export-instances warn AppExport shop/ledger", "selection-exports warn AppEndpoints shop/checkout")
}

func TestChecksFindSidecarsWithoutMTLS(t *testing.T) {
	west, _ := linkedPair(t)
	stream, err := v1alpha1.NewResolverClient(west.connect(orders)).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hello := &v1alpha1.Hello{App: wireApp(orders), PlainText: true}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	west.finds("mtls warn shop/orders")
	plain := start(t, configOf(t, "plain", nil), nil)
	plain.finds("mtls warn plain")
}

func TestChecksFindVersionsAndClocksApart(t *testing.T) {
	ca := identitytest.NewCA(t, identitytest.LongLived)
	westConfig, eastConfig := configOf(t, "west", ca), configOf(t, "east", ca)
	westConfig.Version, eastConfig.Version = "v1.4.2", "v1.2.9-2-gabc"
	eastConfig.clock = func() time.Time { return time.Now().Add(-time.Hour) }
	west, east := start(t, westConfig, ca), start(t, eastConfig, ca)
	peersLinked(t, west, east)
	west.finds("clock warn east", "versions warn east")
}

func TestChecksFindCertificatesThatExpire(t *testing.T) {
	soon := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) }
	ca := identitytest.NewCA(t, soon)
	cfg := configOf(t, "west", ca)
	*cfg.Identity.Files = *ca.Config(identity.ServiceApp("", "west"), func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-10*time.Hour), time.Now().Add(2*time.Hour)
	}).Files
	west := start(t, cfg, ca)
	west.finds("certificates warn own certificate", "certificates warn own root")
}

func TestChecksFindAStoreThatCanOnlyBeRead(t *testing.T) {
	var consul serverstest.Consul
	consul.Need(t)
	t.Cleanup(consul.End)
	ca := identitytest.NewCA(t, identitytest.LongLived)
	for rules, faults := range map[string][]string{
		`key_prefix "isthmus/" { policy = "write" }`: nil,
		`key_prefix "isthmus/" { policy = "read" }`:  {"store-writes warn west"},
	} {
		cfg := configOf(t, "west", ca)
		store, err := parseStore(t, fmt.Sprintf("consul: {address: 'http://%s', token: {file: %s}}", consul.Server.Plain(), tokenFile(t, consul.NewToken(t, rules))))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store = store
		west := start(t, cfg, ca)
		west.finds(faults...)
	}
}

func tokenFile(t *testing.T, token string) string {
	path := filepath.Join(t.TempDir(), "token")
	identitytest.Write(t, path, []byte(token))
	return path
}

func parseStore(t *testing.T, text string) (Store, error) {
	cfg, err := Parse("isthmus.yaml", []byte("cluster: west\nstore: {"+text+"}\nidentity: {insecure: true}\ndataDir: "+t.TempDir()+"\nlisten: {resolver: '127.0.0.1:0'}\n"))
	if err != nil {
		return Store{}, err
	}
	return cfg.Store, nil
}

// alive waits until a service is made that can't get ready.
func alive(r *running) *running {
	r.t.Helper()
	r.within("alive", func() bool { code, _ := r.get("/livez"); return code == http.StatusOK })
	return r
}

func TestChecksFindASentryThatIsAwayOrAnother(t *testing.T) {
	programstest.Need(t, "sentry")
	box, err := sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*sandbox.Sentry
	for _, name := range []string{"west", "other"} {
		authority, err := sandbox.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		sentry, err := box.Sentry(t.Context(), sandbox.SentryOptions{Cluster: name, Authority: authority})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sentry)
	}
	cfg := configOf(t, "west", nil)
	cfg.Identity.Config = identity.Config{Sentry: &identity.Sentry{Address: all[0].Address, TrustAnchorsFile: all[0].AnchorsFile}}
	west := start(t, cfg, nil)
	west.finds()
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	west.finds("sentry fail ")

	cfg = configOf(t, "north", nil)
	cfg.Identity.Config = identity.Config{Sentry: &identity.Sentry{Address: all[1].Address, TrustAnchorsFile: all[0].AnchorsFile}}
	north := alive(launch(t, cfg, nil))
	north.within("another Sentry", func() bool {
		text := fmt.Sprint(north.checks())
		return strings.Contains(text, "{sentry-trust fail sentry") && strings.Contains(text, "{identity fail service north")
	})
	cfg = configOf(t, "south", nil)
	cfg.Identity.Config = identity.Config{Sentry: &identity.Sentry{Address: all[1].Address, TrustAnchorsFile: all[1].AnchorsFile, TrustDomain: "elsewhere"}}
	south := alive(launch(t, cfg, nil))
	south.within("another trust domain", func() bool { return strings.Contains(fmt.Sprint(south.checks()), "{sentry-trust fail sentry") })
}

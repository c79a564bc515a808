package resolverservice

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// strangers are two services with an authority each, which know nothing of each other.
func strangers(t *testing.T) (west, east *running) {
	t.Helper()
	westCA, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	return start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
}

func (r *running) linker() v1alpha1.LinkClient {
	return v1alpha1.NewLinkClient(r.connect(identity.CLIApp("")))
}

// invite opens an invitation.
func (r *running) invite(cluster string, o *v1alpha1.LinkOptions) *v1alpha1.InviteResponse {
	r.t.Helper()
	answer, err := r.linker().Invite(r.t.Context(), &v1alpha1.InviteRequest{Cluster: cluster, Options: o})
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// accept takes an invitation, and returns what was told last.
func (r *running) accept(invitation string, o *v1alpha1.LinkOptions) (last *v1alpha1.LinkState, err error) {
	r.t.Helper()
	stream, err := r.linker().Accept(r.t.Context(), &v1alpha1.AcceptRequest{Invitation: invitation, Options: o})
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		state, err := stream.Recv()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = state
	}
}

// clusters are the Cluster objects of a service's store.
func (r *running) clusters() (names []string) {
	r.t.Helper()
	answer, err := v1alpha1.NewObjectsClient(r.connect(identity.CLIApp(""))).Get(r.t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: "Cluster"}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range answer.GetObjects() {
		names = append(names, o.GetKey().GetName())
	}
	return names
}

// state is an invitation as its service has it.
func (r *running) invitation(id string) *v1alpha1.LinkState {
	r.t.Helper()
	answer, err := r.linker().Invitations(r.t.Context(), &v1alpha1.InvitationsRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range answer.GetInvitations() {
		if i.GetId() == id {
			return i
		}
	}
	r.t.Fatalf("no invitation %s in %v", id, answer)
	return nil
}

func TestTwoClustersAreLinkedByAnInvitation(t *testing.T) {
	west, east := strangers(t)
	invited := east.invite("west", nil)
	done, err := west.accept(invited.GetInvitation(), nil)
	if err != nil {
		t.Fatal(err)
	}
	there := east.invitation(invited.GetState().GetId())
	if done.GetState() != "linked" || there.GetState() != "linked" || len(done.GetWords()) != 4 || strings.Join(done.GetWords(), " ") != strings.Join(there.GetWords(), " ") {
		t.Errorf("west has %v, and east %v", done, there)
	}
	t.Log(done.GetWords(), string(done.GetObject()))
	east.apply(export("west"))
	east.sidecar(orders, "10.1.0.1:50002")
	west.apply(selectsOrders)
	west.within("orders answered from east", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") })
	east.within("west heard", func() bool { return east.peer("west").GetState() == "connected" })
}

// way is a TCP proxy that leads each new connection to the next of its targets, as a load balancer
// does, and keeps all bytes.
type way struct {
	net.Listener
	targets []string
	next    atomic.Int64
	bytes   lockedBuffer
	conns   sync.WaitGroup
	ended   chan struct{}
}

func newWay(t *testing.T, targets ...net.Addr) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: l, ended: make(chan struct{})}
	for _, to := range targets {
		w.targets = append(w.targets, to.String())
	}
	w.conns.Go(w.run)
	t.Cleanup(w.end)
	return w
}

func (w *way) run() {
	for {
		conn, err := w.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.targets[int(w.next.Add(1)-1)%len(w.targets)])
		if err != nil {
			conn.Close()
			continue
		}
		w.pass(conn, to)
	}
}

// end closes every connection.
func (w *way) end() {
	close(w.ended)
	w.Close()
	w.conns.Wait()
}

// pass passes bytes both ways until one side ends.
func (w *way) pass(a, b net.Conn) {
	w.conns.Go(func() {
		<-w.ended
		a.Close()
		b.Close()
	})
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		w.conns.Go(func() {
			defer a.Close()
			defer b.Close()
			_, _ = io.Copy(io.MultiWriter(pair[0], &w.bytes), pair[1])
		})
	}
}

// lockedBuffer keeps what many write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// refusedFor checks that an acceptance was refused for a reason, and that nothing was written.
func refusedFor(t *testing.T, err error, reason string, services ...*running) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "("+reason+")") {
		t.Errorf("got %v, want %s", err, reason)
	}
	for _, r := range services {
		if names := r.clusters(); len(names) > 0 {
			t.Errorf("%s has %v", r.cfg.Cluster, names)
		}
	}
}

// greets tells how a gateway answers a ClientHello for a name.
func (r *running) greets(name string, source *identity.Source) error {
	r.t.Helper()
	cfg := source.CheckTLS()
	cfg.ServerName, cfg.NextProtos = name, []string{"h2"}
	conn, err := tls.Dial("tcp", r.Addr("gateway").String(), cfg)
	if err == nil {
		conn.Close()
	}
	return err
}

func TestTheReservedNameIsUnknownWithoutAnInvitation(t *testing.T) {
	west, east := strangers(t)
	name := catalog.Domain(catalog.DefaultDomain).LinkHost("east")
	unknown := func(name string) bool {
		err := east.greets(name, west.identity)
		return err != nil && strings.Contains(err.Error(), "unrecognized name")
	}
	if !unknown(name) {
		t.Error("the name is known, and there is no invitation")
	}
	answer, err := east.linker().Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "west", ExpiresS: 10})
	if err != nil {
		t.Fatal(err)
	}
	if unknown(name) || !unknown(strings.Replace(name, "east", "west", 1)) {
		t.Error("the name is unknown in spite of an invitation, or one of another cluster is known")
	}
	east.within("unknown once the invitation's time is over", func() bool { return unknown(name) })
	if state := east.invitation(answer.GetState().GetId()); state.GetState() != "expired" {
		t.Errorf("the invitation is %v", state)
	}
}

func TestInvitationsWorkWithTwoReplicas(t *testing.T) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	westCA, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	west := start(t, configOf(t, "west", westCA), westCA)
	var replicas []*running
	for _, name := range []string{"a", "b"} {
		f := eastCA.Config(identity.ServiceApp("", "east")).Files
		cfg, err := Parse("isthmus.yaml", fmt.Appendf(nil, "cluster: east\ndataDir: %s\nidentity: {files: {cert: %s, key: %s, ca: %s}}\ndevelopment: {loopback: true}\n"+
			"store: {etcd: {endpoints: ['%[5]s']}}\ninstances: {etcd: {endpoints: ['%[5]s']}}\nreplicas: {name: %s}\nlisten: {resolver: '127.0.0.1:0', gateway: '127.0.0.1:0', admin: '127.0.0.1:0'}\n",
			t.TempDir(), f.Cert, f.Key, f.CA, etcd.URL(), name))
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, start(t, cfg, eastCA))
	}
	balancer := newWay(t, replicas[0].Addr("gateway"), replicas[1].Addr("gateway"))
	for _, holder := range replicas { // one of both is not the one that the first connection leads to
		before := balancer.next.Load()
		text := holder.invite("west", &v1alpha1.LinkOptions{Gateways: []string{balancer.Addr().String()}}).GetInvitation()
		done, err := west.accept(text, nil)
		if err != nil || done.GetState() != "linked" {
			t.Fatal(done, err)
		}
		t.Logf("replica %s was found by connection %d", holder.cfg.Replicas.Name, balancer.next.Load()-before)
		for _, r := range replicas {
			r.within("west known", func() bool { return len(r.clusters()) == 1 })
		}
		_, err = west.accept(text, nil)
		refusedFor(t, err, "used")
	}
}

// tlsBox ends TLS between west and east's gateway, and passes on what it reads.
func tlsBox(t *testing.T, east *running, shown tls.Certificate, as *identity.Source) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{shown}, NextProtos: []string{"h2"}, ClientAuth: tls.RequestClientCert}), ended: make(chan struct{})}
	w.conns.Go(func() {
		for {
			conn, err := w.Accept()
			if err != nil {
				return
			}
			cfg := as.CheckTLS()
			cfg.ServerName, cfg.NextProtos = catalog.Domain(catalog.DefaultDomain).LinkHost("east"), []string{"h2"}
			to, err := tls.Dial("tcp", east.Addr("gateway").String(), cfg)
			if err != nil {
				conn.Close()
				continue
			}
			w.pass(conn, to)
		}
	})
	t.Cleanup(w.end)
	return w
}

// A middle box knows all but the secret. It passes messages on as they are, and has certificates
// that look right.
func TestAMiddleBoxLearnsNothing(t *testing.T) {
	west, east := strangers(t)
	evil := identitytest.NewCA(t)
	pairOf := func(p identitytest.Pair) tls.Certificate {
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	asWest, err := identity.New(evil.Config(identity.ServiceApp("", "west")), identity.ServiceApp("", "west"), slog.New(slog.DiscardHandler))
	if err == nil {
		err = asWest.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	web := pairOf(evil.Issue(checkout, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"gw.east.example"} }))
	for what, shown := range map[string]tls.Certificate{
		"a load balancer's certificate":                  web,
		"a certificate that names east, of its own root": pairOf(evil.Issue(identity.ServiceApp("", "east"))),
		"one of an app under east's root":                pairOf(east.ca.Issue(orders)),
	} {
		t.Run(what, func(t *testing.T) {
			b := tlsBox(t, east, shown, asWest)
			invited := east.invite("west", &v1alpha1.LinkOptions{Gateways: []string{b.Addr().String()}})
			_, err := west.accept(invited.GetInvitation(), nil)
			refusedFor(t, err, "intercepted", west, east)
			t.Log(err)
			read := b.bytes.take()
			id, _ := hex.DecodeString(invited.GetState().GetId())
			if bytes.Contains(read, id) || bytes.Contains(read, []byte(west.Addr("gateway").String())) {
				t.Error("west has told it something")
			}
			if s := east.invitation(invited.GetState().GetId()); s.GetState() != "open" || s.GetTriesLeft() != 5 {
				t.Errorf("the invitation is %v", s)
			}
		})
	}
	// Even with the very key of east's service it can't pass west's proof on.
	files := east.cfg.Identity.Files
	stolen, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	b := tlsBox(t, east, stolen, asWest)
	_, err = west.accept(east.invite("west", &v1alpha1.LinkOptions{Gateways: []string{b.Addr().String()}}).GetInvitation(), nil)
	refusedFor(t, err, "altered", west, east)
}

func TestNoSecretIsOnTheWireOrInAStore(t *testing.T) {
	westCA, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	var logs lockedBuffer
	services := map[string]*running{}
	for name, ca := range map[string]*identitytest.CA{"west": westCA, "east": eastCA} {
		services[name] = launchWith(t, configOf(t, name, ca), ca, slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
		services[name].within("ready", func() bool { code, _ := services[name].get("/readyz"); return code == http.StatusOK })
	}
	west, east := services["west"], services["east"]
	relay := newWay(t, east.Addr("gateway"))
	text := east.invite("west", &v1alpha1.LinkOptions{Gateways: []string{relay.Addr().String()}}).GetInvitation()
	if _, err := west.accept(text, nil); err != nil {
		t.Fatal(err)
	}
	wire := relay.bytes.take()
	var stores []byte
	for _, r := range services {
		b, err := os.ReadFile(r.cfg.Store.Path())
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, b...)
	}
	if !bytes.Contains(stores, []byte(relay.Addr().String())) || len(wire) < 1000 {
		t.Fatalf("stores of %d bytes and a capture of %d are not what was meant to be searched", len(stores), len(wire))
	}
	_, body, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string][]byte{"the invitation": []byte(body[:40]), "the secret": raw[4:24], "the secret in hexadecimal": []byte(hex.EncodeToString(raw[4:24]))}
	for name, r := range services {
		key, err := os.ReadFile(r.cfg.Identity.Files.Key)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(key)
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		d, err := parsed.(*ecdsa.PrivateKey).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		secrets["the key of "+name], secrets["the key of "+name+" in PEM"] = d, bytes.Split(key, []byte("\n"))[1]
	}
	for place, held := range map[string][]byte{"on the wire": wire, "in a store": stores, "in a log": logs.take()} {
		for what, secret := range secrets {
			if bytes.Contains(held, secret) || bytes.Contains(held, []byte(base64.StdEncoding.EncodeToString(secret))) {
				t.Errorf("%s is %s", what, place)
			}
		}
	}
	// The recorded bytes mean nothing to another connection.
	conn, err := net.Dial("tcp", east.Addr("gateway").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(wire)
	_, _ = io.Copy(io.Discard, conn)
	if got := east.clusters(); len(got) != 1 {
		t.Errorf("after a replay east has %v", got)
	}
}

func TestALinkNeedsAnIdentityAndAnAddress(t *testing.T) {
	plain := start(t, configOf(t, "plain", nil), nil)
	_, err := plain.linker().Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "west"})
	refusedFor(t, err, "insecure")
	ca := identitytest.NewCA(t)
	cfg := configOf(t, "west", ca)
	cfg.Development.Loopback = false // nobody else reaches the address where its gateway listens
	west := start(t, cfg, ca)
	_, err = west.linker().Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "east"})
	refusedFor(t, err, "no-gateway")
	cfg = configOf(t, "west", ca)
	cfg.Gateway.Advertise = []string{"gw.west.example"}
	if got := cfg.advertised(nil); len(got) != 1 || got[0] != "gw.west.example" {
		t.Errorf("advertised %v", got)
	}
}

package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

var quiet = slog.New(slog.DiscardHandler)

// place is a resolver service's identity, with a server that reports how it identifies its
// callers.
type place struct {
	*identity.Source
	name    string
	domain  string
	ca      *identitytest.CA
	address string
}

func newPlace(t *testing.T, ca *identitytest.CA, name, domain string) *place {
	t.Helper()
	app := identity.ServiceApp("", name)
	p := &place{name: name, domain: domain, ca: ca, Source: source(t, ca.Config(app, identitytest.In(t, domain, app)), quiet)}
	p.address = serveStreams(t, p.PeeringCredentials())
	return p
}

// knows makes the place trust another one, by the other's root and domain.
func (p *place) knows(others ...*place) {
	said := map[string]catalog.Trust{}
	for _, o := range others {
		said[o.name] = catalog.Trust{Domain: o.domain, Roots: string(o.ca.PEM())}
	}
	p.SetPeers("", said)
}

// serveStreams serves health's Watch, whose streams live as long as their connection.
func serveStreams(t *testing.T, creds credentials.TransportCredentials) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(creds), grpc.StreamInterceptor(
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			cluster, _ := identity.FromPeer(ss.Context())
			id, _ := identity.FromContext(ss.Context())
			if err := ss.SendHeader(map[string][]string{"peer": {cluster}, "id": {id.String()}}); err != nil {
				return err
			}
			return next(srv, ss)
		}))
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// stream is one stream on a connection of its own.
type stream struct {
	grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	peer, id string // how the server takes the caller
}

func open(t *testing.T, address string, creds credentials.TransportCredentials) (*stream, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return nil, err
	}
	if _, err := s.Recv(); err != nil {
		return nil, err
	}
	header, err := s.Header()
	if err != nil {
		return nil, err
	}
	return &stream{s, strings.Join(header["peer"], ""), strings.Join(header["id"], "")}, nil
}

// ends waits until the stream is over.
func (s *stream) ends(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.Recv()
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the stream went on: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the stream goes on")
	}
}

func TestTwoAuthoritiesPeer(t *testing.T) {
	west := newPlace(t, identitytest.NewCA(t), "west", "west.example")
	east := newPlace(t, identitytest.NewCA(t), "east", "east.example")
	west.knows(east)
	east.knows(west)
	for _, way := range []struct{ from, to *place }{{west, east}, {east, west}} {
		s, err := open(t, way.to.address, way.from.PeerCredentials(way.to.name))
		if err != nil {
			t.Fatal(err)
		}
		if s.peer != way.from.name || s.id != "spiffe://"+way.from.domain+"/ns/isthmus-system/isthmus-"+way.from.name {
			t.Errorf("%s takes %s for peer %q, id %s", way.to.name, way.from.name, s.peer, s.id)
		}
	}
}

// West knows east by another root, and identifies its clients.
func TestAPeersRootsCountForItsServiceAlone(t *testing.T) {
	own, eastCA, otherCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	west := newPlace(t, own, "west", "west.example")
	west.SetPeers("", map[string]catalog.Trust{
		"east":  {Domain: "east.example", Roots: string(eastCA.PEM())},
		"any":   {Roots: string(eastCA.PEM())},
		"north": {},
		"south": {Domain: "south.example"},
	})
	service := func(name string) catalog.App { return identity.ServiceApp("", name) }
	for what, c := range map[string]struct {
		by     *identitytest.CA
		domain string
		app    catalog.App
		peer   string // how it is taken; "-" for refused
	}{
		"east itself":                              {eastCA, "east.example", service("east"), "east"},
		"east in another domain":                   {eastCA, "else.example", service("east"), "-"},
		"east by own roots, though it has its own": {own, "east.example", service("east"), "-"},
		"east by a third's":                        {otherCA, "east.example", service("east"), "-"},
		"an app of east":                           {eastCA, "east.example", checkout, "-"},
		"an operator of east":                      {eastCA, "east.example", identity.CLIApp(""), "-"},
		"east as west":                             {eastCA, "east.example", service("west"), "-"},
		"east as north":                            {eastCA, "east.example", service("north"), "-"},
		"east as an unknown cluster":               {eastCA, "east.example", service("unknown"), "-"},
		"east's service in another namespace":      {eastCA, "east.example", identity.ServiceApp("mesh", "east"), "-"},
		"a peer in whatever domain":                {eastCA, "whatever.example", service("any"), "any"},
		"a peer by own roots":                      {own, "x.example", service("north"), "north"},
		"a peer by own roots in its domain":        {own, "south.example", service("south"), "south"},
		"a peer by own roots in another":           {own, "north.example", service("south"), "-"},
		"an own app":                               {own, "public", checkout, "-"},
		"an own operator":                          {own, "public", identity.CLIApp(""), "-"},
		"a cluster that nobody knows, by own":      {own, "public", service("unknown"), "-"},
	} {
		t.Run(what, func(t *testing.T) {
			// The client accepts any server: only the server's decision counts.
			client := presenting(t, c.by.Issue(c.app, identitytest.In(t, c.domain, c.app)))(west.Source)
			s, err := open(t, west.address, credentials.NewTLS(client))
			switch {
			case c.peer == "-" && err == nil:
				t.Errorf("let in as %s, peer %q", s.id, s.peer)
			case c.peer != "-" && err != nil:
				t.Error(err)
			case err == nil && s.peer != c.peer:
				t.Errorf("taken for peer %q, want %q", s.peer, c.peer)
			}
		})
	}
}

// West refuses servers that should be east, with these errors.
func TestErrorsOfPeersSayWhatWasTriedAndWhatToDo(t *testing.T) {
	own, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	west := newPlace(t, own, "west", "west.example")
	east := newPlace(t, eastCA, "east", "east.example")
	east.knows(west)
	root := string(eastCA.PEM())
	for what, c := range map[string]struct {
		cluster string
		trust   catalog.Trust
		want    []string
	}{
		"as it should be": {"east", catalog.Trust{Domain: "east.example", Roots: root}, nil},
		"another name": {"north", catalog.Trust{Roots: root}, []string{
			"spiffe://east.example/ns/isthmus-system/isthmus-east", "spiffe://(any trust domain)/ns/isthmus-system/isthmus-north", "spec.gateways"}},
		"another domain": {"east", catalog.Trust{Domain: "else.example", Roots: root}, []string{
			"spiffe://east.example/ns/isthmus-system/isthmus-east", "spiffe://else.example/ns/isthmus-system/isthmus-east", "spec.trust.domain"}},
		"another root": {"east", catalog.Trust{Roots: string(own.PEM())}, []string{
			"CN=identitytest root, SHA-256 ", "add east's root to Cluster east, spec.trust.roots"}},
		"no root named": {"east", catalog.Trust{}, []string{
			"of this cluster, since spec.trust.roots names none", "CN=identitytest root, SHA-256 ", "add east's root to Cluster east, spec.trust.roots"}},
		"roots that are none":   {"east", catalog.Trust{Roots: "hello"}, []string{"spec.trust.roots of Cluster east: not PEM"}},
		"a domain that is none": {"east", catalog.Trust{Domain: "a b"}, []string{`spec.trust.domain "a b" of Cluster east`}},
		"a leaf for a root":     {"east", catalog.Trust{Roots: string(eastCA.Issue(checkout).Cert)}, []string{"no authority"}},
	} {
		t.Run(what, func(t *testing.T) {
			west.SetPeers("", map[string]catalog.Trust{c.cluster: c.trust})
			_, err := open(t, east.address, west.PeerCredentials(c.cluster))
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range c.want {
				wantError(t, "west", plain(err), want)
			}
		})
	}
}

// plain is an error without gRPC's quotes.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), `\"`, `"`))
}

func TestOneBadTrustLeavesTheOthers(t *testing.T) {
	west := newPlace(t, identitytest.NewCA(t), "west", "west.example")
	east := newPlace(t, identitytest.NewCA(t), "east", "east.example")
	east.knows(west)
	west.SetPeers("", map[string]catalog.Trust{
		"bad":  {Roots: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		"east": {Roots: string(east.ca.PEM())},
	})
	if _, err := open(t, east.address, west.PeerCredentials("east")); err != nil {
		t.Error(err)
	}
}

// A rotation: old, old and new, new only. A connection lasts as long as the root that
// authenticated it.
func TestConnectionsOfPeersEndWithTheirRoots(t *testing.T) {
	own, older, newer := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	west := newPlace(t, own, "west", "west.example")
	sets := map[string]string{"old": string(older.PEM()), "both": string(older.PEM()) + string(newer.PEM()), "new": string(newer.PEM())}
	for _, side := range []string{"asking", "asked"} {
		t.Run(side, func(t *testing.T) {
			connect := func(ca *identitytest.CA) (*stream, error) {
				east := newPlace(t, ca, "east", "east.example")
				east.knows(west)
				if side == "asked" {
					return open(t, west.address, east.PeerCredentials("west"))
				}
				return open(t, east.address, west.PeerCredentials("east"))
			}
			trust := func(roots string) {
				west.SetPeers("", map[string]catalog.Trust{"east": {Domain: "east.example", Roots: sets[roots]}})
			}
			goes := func(what string, ca *identitytest.CA, want bool) *stream {
				t.Helper()
				s, err := connect(ca)
				if (err == nil) != want {
					t.Fatalf("%s: %v", what, err)
				}
				return s
			}
			trust("old")
			before := goes("the old", older, true)
			goes("the new, too soon", newer, false)
			trust("both")
			during := goes("the new", newer, true)
			trust("new")
			before.ends(t)
			goes("the old, too late", older, false)
			goes("the new", newer, true)
			west.SetPeers("", map[string]catalog.Trust{"east": {Domain: "other.example", Roots: sets["new"]}})
			during.ends(t)
			trust("new")
			last := goes("the new again", newer, true)
			west.SetPeers("", nil)
			last.ends(t)
		})
	}
}

// A peer without roots of its own is checked against own roots, also after those change.
func TestConnectionsOfPeersEndWithOwnRoots(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg := ca.Config(identity.ServiceApp("", "west"))
	west := source(t, cfg, quiet)
	west.SetPeers("", map[string]catalog.Trust{"east": {}})
	address := serveStreams(t, west.PeeringCredentials())
	east := source(t, ca.Config(identity.ServiceApp("", "east")), quiet)
	east.SetPeers("", map[string]catalog.Trust{"west": {}})
	s, err := open(t, address, east.PeerCredentials("west"))
	if err != nil {
		t.Fatal(err)
	}
	sidecar := source(t, ca.Config(checkout), quiet)
	asWest := sidecar.ClientCredentials(identity.OneOf(identity.ServiceApp("", "west")))
	if _, err := open(t, address, asWest); err == nil {
		t.Error("a sidecar was let in as a peer")
	}
	app, err := open(t, serveStreams(t, west.ServerCredentials(identity.Anyone)), asWest)
	if err != nil {
		t.Fatal(err)
	}
	identitytest.Write(t, cfg.Files.CA, identitytest.NewCA(t).PEM())
	if err := west.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ends(t)
	app.ends(t)
}

// A connection is replaced once, when its certificate is old, even if that was not renewed.
func TestAConnectionOfAPeerIsMadeAnewBeforeItsCertificateIsOld(t *testing.T) {
	ca := identitytest.NewCA(t)
	west := newPlace(t, ca, "west", "public")
	west.knows(newPlace(t, ca, "east", "public"))
	service := identity.ServiceApp("", "east")
	aged := func(begun, end time.Duration) *stream {
		life := func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(begun), time.Now().Add(end) }
		east := source(t, ca.Config(service, life), quiet)
		east.SetPeers("", map[string]catalog.Trust{"west": {}})
		s, err := open(t, west.address, east.PeerCredentials("west"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := aged(-100*time.Second, 40*time.Second)
	for try := 1; ; try++ { // where this machine is slow, the time to make it anew has passed before it is made
		begun := time.Now()
		young := aged(-50*time.Second, 37*time.Second)
		took := time.Since(begun)
		if took < 2*time.Second {
			young.ends(t)
			break
		}
		if try == 20 {
			t.Fatalf("a connection took %s, and as long each time before", took)
		}
	}
	if err := old.Context().Err(); err != nil {
		t.Errorf("ended, too: %v", err)
	}
}

func TestTrustedTellsWhatIsTrusted(t *testing.T) {
	west := newPlace(t, identitytest.NewCA(t), "west", "west.example")
	east := newPlace(t, identitytest.NewCA(t), "east", "east.example")
	east.knows(west)
	west.SetPeers("", map[string]catalog.Trust{
		"bad":   {Roots: "hello"},
		"east":  {Domain: "east.example", Roots: string(east.ca.PEM())},
		"north": {},
	})
	if _, err := open(t, east.address, west.PeerCredentials("east")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, east.address, west.PeerCredentials("north")); err == nil {
		t.Fatal("east taken for north")
	}
	type line struct{ use, cluster, subject, err string }
	want := []line{
		{identity.OwnCertificate, "", "spiffe://west.example/ns/isthmus-system/isthmus-west", ""},
		{identity.OwnRoot, "", "CN=identitytest root", ""},
		{identity.PeerRoot, "bad", "", "spec.trust.roots"},
		{identity.PeerRoot, "east", "CN=identitytest root", ""},
		{identity.PeerCertificate, "east", "spiffe://east.example/ns/isthmus-system/isthmus-east", ""},
		{identity.PeerRoot, "north", identity.OwnRoots, ""},
		{identity.PeerCertificate, "north", "spiffe://east.example/ns/isthmus-system/isthmus-east", "isthmus-north"},
	}
	got := west.Trusted()
	if len(got) != len(want) {
		t.Fatalf("got %d: %+v", len(got), got)
	}
	for i, w := range want {
		g := got[i]
		if g.Use != w.use || g.Cluster != w.cluster || g.Subject != w.subject || (g.Err == nil) != (w.err == "") || g.Err != nil && !strings.Contains(g.Err.Error(), w.err) {
			t.Errorf("line %d: got %+v, want %+v", i, g, w)
		}
		if hasCert := w.subject != "" && w.subject != identity.OwnRoots; hasCert != (len(g.Fingerprint) == 64 && g.NotAfter.After(time.Now())) {
			t.Errorf("line %d: fingerprint %q, not after %s", i, g.Fingerprint, g.NotAfter)
		}
	}
}

func TestARefusalTellsWhoseRootItMayBe(t *testing.T) {
	var log logBuffer
	west := source(t, identitytest.NewCA(t).Config(identity.ServiceApp("", "west")), slog.New(slog.NewTextHandler(&log, nil)))
	eastCA := identitytest.NewCA(t)
	west.SetPeers("", map[string]catalog.Trust{"east": {Roots: string(eastCA.PEM())}})
	address := serveStreams(t, west.ServerCredentials(identity.Anyone))
	if _, err := open(t, address, credentials.NewTLS(presenting(t, eastCA.Issue(checkout))(west))); err == nil {
		t.Fatal("an app of east was let in")
	}
	if log.count("has the name of a root of cluster east") == 0 {
		t.Error("the log does not say whose root it may be")
	}
}

// A session is not resumed once a handshake would be refused.
func TestSessionsAreNotResumed(t *testing.T) {
	west := newPlace(t, identitytest.NewCA(t), "west", "west.example")
	eastCA, service := identitytest.NewCA(t), identity.ServiceApp("", "east")
	client := presenting(t, eastCA.Issue(service))(west.Source)
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client.MinVersion, client.MaxVersion = version, version
		west.SetPeers("", map[string]catalog.Trust{"east": {Roots: string(eastCA.PEM())}})
		for range 2 {
			s, err := open(t, west.address, credentials.NewTLS(client))
			if err != nil {
				t.Fatal(err)
			}
			p, _ := peer.FromContext(s.Context())
			if p.AuthInfo.(credentials.TLSInfo).State.DidResume {
				t.Error("a session was resumed")
			}
		}
		west.SetPeers("", nil)
		if _, err := open(t, west.address, credentials.NewTLS(client)); err == nil {
			t.Error("let in without its roots")
		}
	}
}

func TestInsecureKnowsNoPeers(t *testing.T) {
	s, err := identity.New(identity.Config{Insecure: true}, west, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.SetPeers("", map[string]catalog.Trust{"east": {Roots: "hello"}})
	address := serveStreams(t, s.PeeringCredentials())
	got, err := open(t, address, s.PeerCredentials("east"))
	if err != nil || got.peer != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if all := s.Trusted(); len(all) > 0 {
		t.Errorf("trusts %+v", all)
	}
}

package system

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// hostile is a guest that does not run isthmus dev join, and so does what it likes.
type hostile struct {
	h      *host
	source *identity.Source
	calls  *grpc.ClientConn // by the name of peering
}

// certified is a source with a certificate in PEM and its key.
func certified(t *testing.T, app catalog.App, roots string, certificate []byte, key any) *identity.Source {
	t.Helper()
	private, _ := key.(*ecdsa.PrivateKey)
	s, err := identity.New(identity.Config{Sentry: &identity.Sentry{Address: "nowhere.example:1", TrustAnchors: roots, First: &identity.Signed{Certificate: certificate, Key: private}}}, app, quiet)
	if err == nil {
		err = s.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// attacker joins by an invitation, as shop/orders.
func (h *host) attacker(t *testing.T, text string) *hostile {
	t.Helper()
	self := identity.ServiceApp("", "anna-laptop")
	first, root, err := identity.SelfSigned(identity.ID{TrustDomain: "public", App: self})
	if err != nil {
		t.Fatal(err)
	}
	key, csr, err := identity.Request()
	if err != nil {
		t.Fatal(err)
	}
	joined, err := invitation.Join(meshtest.Within(t, meshtest.Patience), invitation.Config{
		Cluster: "anna-laptop", Domain: catalog.DefaultDomain, Log: quiet,
		Identity: certified(t, self, string(root), identity.EncodePEM([]*x509.Certificate{first.Leaf}), first.PrivateKey),
	}, text, &v1alpha1.GuestChoice{App: "shop/orders", Csr: csr})
	if err != nil {
		t.Fatal(err)
	}
	a := &hostile{h: h, source: certified(t, self, joined.Host.GetRoots(), joined.Welcome.GetCertificate(), key)}
	a.source.SetPeers("", map[string]catalog.Trust{"west": {}})
	a.calls, err = grpc.NewClient("passthrough:///"+h.west.Gateway, grpc.WithTransportCredentials(a.source.PeerCredentials("west")), grpc.WithAuthority("_resolver.west.isthmus.internal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.calls.Close() })
	return a
}

// asks asks for a certificate of an app, and returns it with its key.
func (a *hostile) asks(t *testing.T, app *v1alpha1.App) (*identity.Source, error) {
	t.Helper()
	key, csr, err := identity.Request()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := v1alpha1.NewGuestsClient(a.calls).Sign(meshtest.Within(t, meshtest.Patience), &v1alpha1.SignRequest{App: app, Csr: csr}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	return certified(t, wire.AppOf(app), string(a.h.authority.Anchors()), answer.GetCertificate(), key), nil
}

// A guest that is hostile gets one app's certificate, in a trust domain that counts for nothing but calls.
func TestAGuestIsNoMoreThanInvited(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	text := h.invite(t)
	a := h.attacker(t, text)
	for what, app := range map[string]catalog.App{
		"another app":               {Namespace: "shop", ID: "payments"},
		"its app-id elsewhere":      {Namespace: "finance", ID: "orders"},
		"an operator":               identity.CLIApp(""),
		"the service of the host":   identity.ServiceApp("", "west"),
		"Dapr's control plane":      {Namespace: "default", ID: "dapr-sentry"},
		"a name with a slash in it": {Namespace: "shop", ID: "orders/../payments"},
	} {
		if _, err := a.asks(t, wire.App(app)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("it asked for a certificate of %s, and got %v", what, err)
		}
	}
	own, err := a.asks(t, wire.App(orders))
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := own.ID(); id.App != orders || !strings.HasSuffix(id.TrustDomain, ".anna-laptop.guest.public") {
		t.Errorf("its app is %s", id)
	}

	if _, err := v1alpha1.NewGuestsClient(a.calls).Sign(t.Context(), &v1alpha1.SignRequest{Csr: make([]byte, identity.MaxRequest+1)}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large request went to Sentry: %v", err)
	}

	// At listen.resolver neither certificate is one of this cluster.
	for what, s := range map[string]*identity.Source{"its app's": own, "its service's": a.source} {
		err := h.watches(t, s, orders)
		if status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unavailable {
			t.Errorf("with %s certificate at listen.resolver: %v", what, err)
		}
		t.Logf("with %s certificate at listen.resolver: %v", what, err)
	}

	// After the end it is nobody, by every way that it had.
	_, _ = v1alpha1.NewGuestsClient(a.calls).Leave(t.Context(), &v1alpha1.LeaveRequest{}) // the connection may end before the answer
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if out, _, err := h.isthmus(t, h.west, "", "get", "cluster", "anna-laptop"); err == nil {
			return errors.New(out)
		}
		return nil
	})
	for _, app := range []*v1alpha1.App{wire.App(orders), nil} {
		_, csr, err := identity.Request()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v1alpha1.NewGuestsClient(a.calls).Sign(meshtest.Within(t, meshtest.Attempt), &v1alpha1.SignRequest{App: app, Csr: csr}); err == nil {
			t.Errorf("after the end it got a certificate of %v", app)
		}
	}
	stream, err := v1alpha1.NewPeeringClient(a.calls).Exports(meshtest.Within(t, meshtest.Attempt))
	if err == nil {
		_ = stream.Send(&v1alpha1.ExportsRequest{Cluster: "anna-laptop"}) // Recv says why not
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("after the end it sees exports")
	}
	if _, err := invitation.Join(meshtest.Within(t, meshtest.Patience), invitation.Config{Cluster: "anna-laptop", Domain: catalog.DefaultDomain, Identity: a.source, Log: quiet}, text, &v1alpha1.GuestChoice{App: "shop/orders", Csr: []byte("x")}); err == nil || !strings.Contains(err.Error(), "(used)") {
		t.Errorf("it joined again by the same invitation: %v", err)
	}
}

// watches asks the host's resolver for the view of an app, and to be an instance of it.
func (h *host) watches(t *testing.T, s *identity.Source, app catalog.App) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+h.west.Resolver, grpc.WithTransportCredentials(s.ClientCredentials(identity.Anyone)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := v1alpha1.NewResolverClient(conn).Watch(meshtest.Within(t, meshtest.Attempt))
	if err == nil {
		_ = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{App: wire.App(app), Instance: &v1alpha1.Instance{Id: "x", Address: "127.0.0.1:19999"}}}})
		_, err = stream.Recv()
	}
	return err
}

// Where the guard enforces, a guest's certificate opens what its app may call while it is a guest, and nothing
// before and after: although the certificate still counts for TLS.
func TestAGuestsCertificateEndsWithIt(t *testing.T) {
	t.Parallel()
	h := hosting(t, map[string]any{"guard": "enforce"})
	h.apply(t, h.west, selection("shop", "orders", "app: payments"))
	callees, lets := map[string]*sandbox.Sidecar{}, map[string]*outsider{}
	for _, id := range []string{"payments", "ledger"} {
		callees[id] = h.sidecar(t, h.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}, Guard: true})
		lets[id] = h.outsiderIn(t, "anna-laptop.guest.public", orders, callees[id].App, callees[id].Internal)
	}
	gets := func(id string, want bool) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			code, body, err := lets[id].http(meshtest.Within(t, meshtest.Attempt), "hello")
			if got := err == nil && code == 200; got != want {
				return fmt.Errorf("it gets to %s: %v, want %v: %d %s %w", id, got, want, code, body, err)
			}
			return nil
		})
	}
	gets("payments", false)
	g := h.join(t, h.invite(t))
	text, _, err := h.isthmus(t, h.west, "", "get", "cluster", "anna-laptop", "-o", "yaml")
	domain := regexp.MustCompile(`[a-z0-9]+\.anna-laptop\.guest\.public`).FindString(text)
	if err != nil || domain == "" {
		t.Fatal(text, err)
	}
	for id, callee := range callees {
		lets[id] = h.outsiderIn(t, domain, orders, callee.App, callee.Internal)
	}
	gets("payments", true)
	gets("ledger", false)
	if err := g.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-g.Process.Done()
	gets("payments", false)
	gets("ledger", false)
}

// An earlier guest of the same name keeps its certificates for a day. They are not those of the guest that
// has been invited since, perhaps for another app.
func TestAnEarlierGuestIsNotTheNext(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	earlier := h.attacker(t, h.invite(t))
	old, err := earlier.asks(t, wire.App(orders))
	if err != nil {
		t.Fatal(err)
	}
	next := h.attacker(t, h.invite(t))
	now, err := next.asks(t, wire.App(orders))
	if err != nil {
		t.Fatal(err)
	}
	was, _ := old.ID()
	if is, _ := now.ID(); is == was {
		t.Errorf("both guests' apps are %s", is)
	}
	_, csr, err := identity.Request()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v1alpha1.NewGuestsClient(earlier.calls).Sign(meshtest.Within(t, meshtest.Attempt), &v1alpha1.SignRequest{App: wire.App(orders), Csr: csr}); err == nil {
		t.Error("the earlier guest got a certificate of the next one's app")
	}
	if _, err := v1alpha1.NewGuestsClient(earlier.calls).Leave(meshtest.Within(t, meshtest.Attempt), &v1alpha1.LeaveRequest{}); err == nil {
		t.Error("the earlier guest ended the next one")
	}
	if _, err := next.asks(t, wire.App(orders)); err != nil {
		t.Errorf("the next guest: %v", err)
	}
}

// An operator gives a guest more time, and its laptop stays as long.
func TestALaptopStaysAsLongAsItsObject(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	h.app(t, h.west, "shop", "payments")
	h.apply(t, h.west, selection("shop", "orders", "app: payments"))
	g := h.join(t, h.invite(t, "--hours", "0.01"))
	text, errs, err := h.isthmus(t, h.west, "", "get", "cluster", "anna-laptop", "-o", "yaml")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	until := regexp.MustCompile(`until: "?([^"\n]+)"?`).FindStringSubmatch(text)
	ends, err := time.Parse(time.RFC3339, until[1])
	if err != nil {
		t.Fatal(text, err)
	}
	h.apply(t, h.west, strings.Replace(text, until[1], ends.Add(time.Hour).Format(time.RFC3339), 1))
	time.Sleep(time.Until(ends.Add(time.Second)))
	answers(t, &sandbox.Sidecar{Daprd: g.Daprd}, "payments", "west")
	if out := g.Tail(100); strings.Contains(out, "is over") {
		t.Errorf("the laptop has left:\n%s", out)
	}
}

// A laptop that is closed is no fault of the cluster, so nobody is called for it.
func TestAClosedLaptopIsNoFault(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	g := h.join(t, h.invite(t))
	status := func(want string) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			out, _, err := h.isthmus(t, h.west, "", "status", "--exit-code")
			if err == nil && !strings.Contains(out, want) {
				err = errors.New("no " + want)
			}
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, out)
			}
			return nil
		})
	}
	status("connected  ")
	if err := g.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	status("away")
	if out, errs, err := h.isthmus(t, h.west, "", "check"); err != nil {
		t.Errorf("isthmus check: %v\n%s%s", err, out, errs)
	}
}

package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// certificate writes a certificate of an app by some authority, and the mesh's own
// roots.
func (m *mesh) certificate(t *testing.T, by *sandbox.Authority, app catalog.App) *identity.Files {
	t.Helper()
	return m.certificateIn(t, sandbox.AppTrustDomain, by, app)
}

func (m *mesh) certificateIn(t *testing.T, domain string, by *sandbox.Authority, app catalog.App) *identity.Files {
	t.Helper()
	cert, key, err := by.Leaf(domain, app)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	for path, text := range map[string][]byte{f.Cert: cert, f.Key: key, f.CA: m.authority.Anchors()} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestASidecarWatchesAndRegistersAsItsOwnAppOnly(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	own := catalog.App{Namespace: "who", ID: "checkout"}
	foreign, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	m.apply(t, m.west, selection("who", "orders", "app: checkout"))
	for what, c := range map[string]struct {
		by     *sandbox.Authority
		hello  *v1alpha1.Hello
		refuse codes.Code
	}{
		"its own view":               {m.authority, &v1alpha1.Hello{App: wire.App(own)}, codes.OK},
		"the view of another":        {m.authority, &v1alpha1.Hello{App: &v1alpha1.App{Namespace: "who", Id: "orders"}}, codes.PermissionDenied},
		"of another namespace":       {m.authority, &v1alpha1.Hello{App: &v1alpha1.App{Namespace: "who2", Id: "checkout"}}, codes.PermissionDenied},
		"to be an instance of it":    {m.authority, &v1alpha1.Hello{App: &v1alpha1.App{Namespace: "who", Id: "orders"}, Instance: &v1alpha1.Instance{Id: "x", Address: "127.0.0.1:19999"}}, codes.PermissionDenied},
		"with another's certificate": {foreign, &v1alpha1.Hello{App: wire.App(own)}, codes.Unavailable},
	} {
		t.Run(what, func(t *testing.T) {
			stream, err := v1alpha1.NewResolverClient(m.connect(t, c.by, own)).Watch(meshtest.Within(t, meshtest.Patience))
			if err == nil {
				_ = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: c.hello}}) // Recv has the reason
				_, err = stream.Recv()
			}
			if got := status.Code(err); got != c.refuse {
				t.Errorf("%v, want %s", err, c.refuse)
			}
		})
	}
	if d, err := m.explain(t, m.west, "who/nobody", "orders"); err != nil || d.Address != "" {
		t.Errorf("an instance was registered by another app: %+v, %v", d, err)
	}
}

// A sidecar whose identity is not its app's starts, says why it has no view, and finds
// itself all the same.
func TestASidecarWithTheWrongIdentity(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	foreign, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other := m.certificate(t, m.authority, catalog.App{Namespace: "wrong", ID: "other"})
	strange := m.certificate(t, foreign, catalog.App{Namespace: "wrong", ID: "strange"})
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, foreign.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]struct {
		identity map[string]any
		why      string
	}{
		"another":   {map[string]any{"files": map[string]any{"cert": other.Cert, "key": other.Key, "ca": other.CA}}, "wrong/other"},
		"strange":   {map[string]any{"files": map[string]any{"cert": strange.Cert, "key": strange.Key, "ca": strange.CA}}, "bad certificate"},
		"misled":    {map[string]any{"sentry": map[string]any{"address": m.west.Sentry.Address, "trustAnchorsFile": roots}}, "sentry " + m.west.Sentry.Address},
		"plaintext": {map[string]any{"insecure": true}, "resolver service"},
	} {
		t.Run(id, func(t *testing.T) {
			s := m.sidecar(t, m.west, sandbox.SidecarOptions{
				App:       catalog.App{Namespace: "wrong", ID: id},
				Component: map[string]any{"identity": c.identity, "resolveTimeout": "500ms"},
			})
			callsItself(t, s, "west")
			meshtest.Eventually(t, meshtest.Patience, func() error {
				_, err := s.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced)
				if err == nil || !strings.Contains(err.Error(), "not ready: ") || !strings.Contains(err.Error(), c.why) {
					return fmt.Errorf("got %w, want not ready and %q", err, c.why)
				}
				t.Log(err)
				return nil
			})
		})
	}
}

func TestAnUnreachableSentryHealsWhenItComes(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.app(t, m.west, "shop", "orders")
	way := newClosedRelay(t, m.west.Sentry.Address)
	s := m.sidecar(t, m.west, sandbox.SidecarOptions{
		App: catalog.App{Namespace: "shop", ID: "checkout"},
		Component: map[string]any{"resolveTimeout": "500ms", "identity": map[string]any{"sentry": map[string]any{
			"address": way.address, "trustAnchorsFile": m.west.Sentry.AnchorsFile,
		}}},
	})
	callsItself(t, s, "west")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := s.Invoke(meshtest.Within(t, meshtest.Patience), "orders", "hello", untraced)
		if err == nil || !strings.Contains(err.Error(), "not ready: ") || !strings.Contains(err.Error(), "sentry "+way.address) {
			return fmt.Errorf("got %w, want not ready and the Sentry's address", err)
		}
		t.Log(err)
		return nil
	})
	came := time.Now()
	way.open(t)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := s.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced)
		return err
	})
	t.Logf("calls go through %s after the Sentry came", time.Since(came).Round(time.Millisecond))
}

// A service without a Sentry does not end; it says what it waits for.
func TestAServiceThatStartsBeforeItsSentryWaitsForIt(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.app(t, m.west, "shop", "orders")
	checkout := m.app(t, m.west, "shop", "checkout")
	answers(t, checkout, "orders", "west")
	ctx := meshtest.Within(t, meshtest.Patience)
	if err := errors.Join(m.west.Stop(ctx), m.west.Sentry.Stop(ctx), m.west.Start()); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		ready := m.page(t, m.west.Admin, "/readyz")
		if !strings.Contains(ready, "not ready: no identity: ") || !strings.Contains(ready, m.west.Sentry.Address) {
			return fmt.Errorf("/readyz says %q, want no identity and the Sentry's address", ready)
		}
		t.Log(strings.TrimSpace(ready))
		return nil
	})
	answers(t, checkout, "orders", "west") // from its last view
	if err := m.west.Sentry.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.west.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	m.apply(t, m.west, selection("shop", "checkout"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, err := checkout.Invoke(ctx, "orders", "hello", untraced); err == nil {
			return errors.New("a change does not arrive")
		}
		return nil
	})
}

// A person has no certificate lying about: Sentry gives the command line one.
func TestAnOperatorIsWhoSentrySays(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // where the certificate is kept
	m := sharedMesh(t)
	stranger, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(other, stranger.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	for anchors, want := range map[string]string{m.west.Sentry.AnchorsFile: "", other: "does not chain to the trust anchors"} {
		out, errs, err := m.isthmus(t, m.west, "", "status", "--sentry", m.west.Sentry.Address, "--trust-anchors", anchors)
		if (err == nil) != (want == "") || !strings.Contains(errs, want) {
			t.Errorf("trusting %s: %v\n%s%s\nwant %q", anchors, err, out, errs, want)
		}
	}
}

package hostile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestM5AConnectionEndsWithItsRoot: a sidecar whose root is taken out of the service's file is
// gone, and nobody else is.
func TestM5AConnectionEndsWithItsRoot(t *testing.T) {
	s := newStage(t, nil)
	others := s.honestCalls(t)
	second, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	roots := func(all ...[]byte) {
		t.Helper()
		if err := os.WriteFile(s.ca, slices.Concat(all...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots(s.authority.Anchors(), second.Anchors())
	old := certified(t, second, westDomain, app("old")).client(t, s.Resolver, "")
	ctx := meshtest.Within(t, meshtest.Patience)
	var stream v1alpha1.Resolver_WatchClient
	meshtest.Eventually(t, meshtest.Patience, func() (err error) {
		if stream, err = watch(ctx, old, app("old"), "127.0.0.1:5"); err == nil {
			_, err = stream.Recv()
		}
		return err
	})
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		ended <- err
	}()
	roots(s.authority.Anchors())
	removed := time.Now()
	select {
	case err := <-ended:
		t.Logf("ended %s after its root was taken out: %v", time.Since(removed).Round(time.Millisecond), err)
	case <-time.After(meshtest.Attempt):
		t.Errorf("the stream goes on %s after its root was taken out", meshtest.Attempt)
	}
	others.goOn(t, 3)
}

// TestM5ASidecarRenewsWithoutAGap: a real daprd whose certificates last for 10 s each stays
// registered, and no call to it fails.
func TestM5ASidecarRenewsWithoutAGap(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const life = 10 * time.Second
	dir := t.TempDir()
	f := identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: p.west.Sentry.AnchorsFile}
	renew := func() error {
		cert, key, err := p.authority.LeafUntil(time.Now().Add(life), westDomain, app("orders"))
		if err == nil {
			err = errors.Join(rename(f.Key, key), rename(f.Cert, cert))
		}
		return err
	}
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer end()
	renewing.Go(func() {
		for every := time.NewTicker(life / 4); ; {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				if err := renew(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	_, err := p.west.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{
		App: app("orders"), Component: map[string]any{"identity": map[string]any{"files": f}},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkout := p.sidecar(t, p.west, "checkout")
	call := func() error {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", nil)
		return err
	}
	meshtest.Eventually(t, meshtest.Patience, call)
	operator := certified(t, p.authority, westDomain, identity.CLIApp("")).client(t, p.west.Resolver, "")
	calls, failed, away := 0, 0, 0
	for until := time.Now().Add(life * 2); time.Now().Before(until); calls++ {
		if err := call(); err != nil {
			if failed++; failed == 1 {
				t.Log(err)
			}
		}
		d, err := v1alpha1.NewResolverClient(operator).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(app("checkout")), App: wire.App(app("orders"))})
		if err != nil || d.Address == "" {
			away++
		}
		time.Sleep(5 * time.Millisecond)
	}
	if failed > 0 || away > 0 {
		t.Errorf("of %d calls %d failed, and shop/orders was away %d times", calls, failed, away)
	}
}

// rename writes a file at once.
func rename(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

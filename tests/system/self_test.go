package system

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// daprd asks for its own app-id when an app calls itself, and on the callee for each
// incoming call that is proxied over gRPC. So no selection may stand in the way.
func TestAnAppAlwaysFindsItself(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.west,
		selection("self", "selects-nothing"),
		selection("self", "selects-another", "app: open"))
	for _, id := range []string{"open", "selects-nothing", "selects-another"} {
		t.Run(id, func(t *testing.T) {
			s := m.app(t, m.west, "self", id)
			callsItself(t, s, "west")
		})
	}
	t.Run("the callee of a call proxied over gRPC", func(t *testing.T) {
		m.apply(t, m.east, export("self", "quotes", "west"), selection("self", "quotes"))
		m.apply(t, m.west, selection("self", "checkout", "app: quotes"))
		m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "self", ID: "quotes"}, GRPC: true})
		proxy := m.caller(t, "self", "checkout", []target{{id: "quotes", grpc: true}})
		for range 100 {
			if _, err := proxy(t.Context(), target{id: "quotes", grpc: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAnAppFindsItselfWhileTheServiceIsAway(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.west, selection("self", "selects-nothing"))
	before := map[string]*sandbox.Sidecar{}
	for _, id := range []string{"open", "selects-nothing"} {
		before[id] = m.app(t, m.west, "self", id)
	}
	if err := m.west.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, s := range before {
		callsItself(t, s, "west")
	}
	t.Run("with gRPC", func(t *testing.T) {
		s := m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "self", ID: "quotes"}, GRPC: true})
		conn, err := s.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := sandbox.Proxy(meshtest.Within(t, meshtest.Patience), conn, "quotes", nil); err != nil {
			t.Errorf("started while the service was away: %v", err)
		}
	})
	t.Run("started meanwhile", func(t *testing.T) {
		callsItself(t, m.app(t, m.west, "self", "late"), "west")
	})
}

// callsItself has an app call itself, and wants no call to wait for anything.
func callsItself(t *testing.T, s *sandbox.Sidecar, cluster string) {
	t.Helper()
	for _, id := range []string{s.App.ID, s.App.ID + "." + s.App.Namespace} {
		for range 20 {
			reply, err := s.Invoke(meshtest.Within(t, meshtest.Patience), id, "hello", untraced)
			if err == nil && (reply.App != s.App.ID || reply.Cluster != cluster) {
				err = fmt.Errorf("%s in %s answered", reply.App, reply.Cluster)
			}
			if err != nil {
				t.Fatalf("%s calls itself: %v", s.App, err)
			}
		}
	}
}

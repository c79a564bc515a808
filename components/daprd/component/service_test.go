package component

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/nameformat"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/kit/logger"
	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
)

var (
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
)

// sidecar is a resolver as Dapr's registry makes it for daprd.
type sidecar struct {
	nr.Resolver
	component *Component
	stop      context.CancelFunc // ends the context of Init, as the runtime does when it stops
}

// newSidecar makes the resolver as daprd does, without Init.
func newSidecar(t testing.TB) *sidecar {
	t.Helper()
	reg := registry.NewRegistry()
	reg.Logger = logger.NewLogger(t.Name())
	reg.Logger.SetOutput(t.Output())
	reg.RegisterComponent(nameformat.NewResolver, "nameformat")
	c := New(quiet, dial.New(quiet, trace.SpanFromContext, Answer))
	c.Register(reg)
	r, err := reg.Create(Name, "v1", Name)
	if err != nil {
		t.Fatal(err)
	}
	return &sidecar{Resolver: r, component: c}
}

// start calls Init as daprd does for a sidecar of app with this internal port.
func (s *sidecar) start(t testing.TB, app catalog.App, port int, configuration any) error {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	t.Cleanup(stop)
	md := nr.Metadata{Configuration: configuration, Instance: nr.Instance{
		AppID: app.ID, Namespace: app.Namespace, Address: "127.0.0.1", DaprInternalPort: port,
	}}
	md.Name = Name
	err := s.Init(ctx, md)
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return err
}

// sidecarOf is a sidecar that follows the service.
func sidecarOf(t testing.TB, service string, app catalog.App, port int) *sidecar {
	t.Helper()
	s := newSidecar(t)
	if err := s.start(t, app, port, withService(service)); err != nil {
		t.Fatal(err)
	}
	return s
}

func withService(service string) map[any]any { // daprd's YAML decoder makes such maps
	return map[any]any{"resolver": service, "cluster": "west", "identity": map[any]any{"insecure": true}, "resolveTimeout": "5s"}
}

func (s *sidecar) find(app catalog.App) (string, error) {
	return s.ResolveID(context.Background(), nr.ResolveRequest{ID: app.ID, Namespace: app.Namespace, Port: 50001})
}

// waitForAddress waits until lookups find the app at the port, or nowhere if that is 0. Lookups of
// other apps return the app's name, and calls to that go to the address.
func (s *sidecar) waitForAddress(t testing.TB, app catalog.App, port int) {
	t.Helper()
	want := ""
	if port != 0 {
		want = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	var got string
	var err error
	r := s.Resolver.(*resolver)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err = r.isthmus.ResolveID(t.Context(), app); got != want {
			continue
		}
		name := want
		if want != "" && want != r.isthmus.Own() {
			name = r.component.dialer.Name(&catalog.Entry{Plan: &catalog.Plan{App: app}})
		}
		if told, _ := s.find(app); told == name {
			return
		}
	}
	t.Fatalf("%s is at %q (%v), want %q", app, got, err, want)
}

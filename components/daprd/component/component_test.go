package component

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
)

func TestSidecarsFindEachOtherThroughDaprsInterface(t *testing.T) {
	service := servicetest.Start(t)
	c, o := sidecarOf(t, service, checkout, 50001), sidecarOf(t, service, orders, 50002)
	c.waitForAddress(t, orders, 50002)
	o.waitForAddress(t, checkout, 50001)
	o.waitForAddress(t, orders, 50002)
}

func TestALookupAllocatesNothing(t *testing.T) {
	service := servicetest.Start(t)
	c := sidecarOf(t, service, checkout, 50001)
	sidecarOf(t, service, orders, 50002)
	c.waitForAddress(t, orders, 50002)
	ctx := t.Context()
	for what, app := range map[string]catalog.App{"another app": orders, "its own app": checkout} {
		req := nr.ResolveRequest{ID: app.ID, Namespace: app.Namespace, Port: 50001}
		allocations := testing.AllocsPerRun(1000, func() {
			if _, err := c.ResolveID(ctx, req); err != nil {
				t.Fatal(err)
			}
		})
		if allocations != 0 {
			t.Errorf("a lookup of %s allocates %v times, want none", what, allocations)
		}
	}
}

// daprd would cache the answers of a resolver with ResolveIDMulti for 20 seconds.
func TestDaprdMustAskForEachCall(t *testing.T) {
	if _, ok := newSidecar(t).Resolver.(nr.ResolverMulti); ok {
		t.Error("the component has ResolveIDMulti")
	}
}

func TestASidecarLeavesViews(t *testing.T) {
	for when, leave := range map[string]func(t *testing.T, s *sidecar){
		"when the component drains": func(t *testing.T, s *sidecar) {
			if err := s.component.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"when daprd's runtime begins to stop": func(_ *testing.T, s *sidecar) { s.stop() },
		"when the process gets a signal": func(t *testing.T, _ *sidecar) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(when, func(t *testing.T) {
			service := servicetest.Start(t)
			c := sidecarOf(t, service, checkout, 50001)
			o := newSidecar(t)
			defer o.component.DrainOnSignals()()
			if err := o.start(t, orders, 50002, withService(service)); err != nil {
				t.Fatal(err)
			}
			c.waitForAddress(t, orders, 50002)
			o.waitForAddress(t, checkout, 50001)

			leave(t, o)
			c.waitForAddress(t, orders, 0)
			o.waitForAddress(t, checkout, 50001) // its own calls continue
		})
	}
}

// Before a resolver is in use, a signal must have its default effect. This runs in a process of its
// own, which the signal ends.
func TestASignalBeforeAnyResolverIsInUseIsNotSwallowed(t *testing.T) {
	if os.Getenv("COMPONENT_HELPER") != "" {
		defer newSidecar(t).component.DrainOnSignals()()
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Minute)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "COMPONENT_HELPER=1")
	err := cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v, want SIGTERM", err)
	}
}

func TestAComponentThatCouldNotStart(t *testing.T) {
	t.Run("never", func(t *testing.T) {
		s := newSidecar(t)
		if _, err := s.find(orders); err == nil {
			t.Error("a lookup before Init succeeds")
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("for a mistake in its configuration", func(t *testing.T) {
		s := newSidecar(t)
		err := s.start(t, orders, 50002, map[any]any{"resolvr": "127.0.0.1:7400", "cluster": "west"})
		if err == nil || !strings.Contains(err.Error(), `"resolver"`) {
			t.Fatalf("Init: %v, want an error that names the right key", err)
		}
		// daprd only logs that, and still makes lookups.
		if _, err := s.find(orders); err == nil || !strings.Contains(err.Error(), `"resolver"`) {
			t.Errorf("a lookup after that: %v, want an error that says why", err)
		}
		if len(s.component.resolvers) != 0 {
			t.Error("a resolver that did not start counts as in use")
		}
	})
}

func TestAResolverMayBeClosedTwice(t *testing.T) {
	for what, stop := range map[string]func(*sidecar){
		"while daprd runs":                    func(*sidecar) {},
		"after daprd's runtime began to stop": func(s *sidecar) { s.stop() },
	} {
		t.Run(what, func(t *testing.T) {
			s := sidecarOf(t, servicetest.Start(t), checkout, 50001)
			stop(s)
			for range 2 { // and once more by the end of the test
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestLocalResolvers(t *testing.T) {
	c := newSidecar(t).component
	self := nr.Instance{AppID: "checkout", Namespace: "shop", Address: "127.0.0.1", DaprInternalPort: 50001}
	format := map[string]any{"format": "{appid}.shop.example:50002"}

	l, err := c.local(t.Context(), "nameformat", "", format, self)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Find(t.Context(), orders, 50001); err != nil || !slices.Equal(got, []string{"orders.shop.example:50002"}) {
		t.Errorf("nameformat says %q, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}

	for name, want := range map[string]string{
		"Isthmus":    "one of Dapr's own",
		"namefromat": "local resolver namefromat/v1",
		"nameformat": "start local resolver nameformat/v1",
	} {
		if _, err := c.local(t.Context(), name, "v1", nil, self); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("local resolver %s: %v, want an error with %q", name, err, want)
		}
	}
}

// rotatingResolver is a Dapr resolver that returns an app's addresses in turn or at random.
type rotatingResolver struct {
	nr.Resolver
	next func(asked int) (string, error)
	asks int
}

func (o *rotatingResolver) ResolveID(context.Context, nr.ResolveRequest) (string, error) {
	o.asks++
	return o.next(o.asks)
}

func TestALocalResolverIsAskedForAllAddresses(t *testing.T) {
	all := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}
	for what, test := range map[string]struct {
		next func(asked int) (string, error)
		want []string
		asks int
	}{
		"in turn":        {func(n int) (string, error) { return all[n%3], nil }, all, 3 + maxRepeats},
		"always one":     {func(int) (string, error) { return all[0], nil }, all[:1], 1 + maxRepeats},
		"none":           {func(int) (string, error) { return "", nil }, nil, 1},
		"an end":         {func(n int) (string, error) { return all[0], map[bool]error{true: io.EOF}[n == 3] }, all[:1], 3},
		"never the same": {func(n int) (string, error) { return strings.Repeat("1", n), nil }, nil, maxAnswers},
	} {
		o := &rotatingResolver{next: test.next}
		got, err := (&daprResolver{dapr: o}).Find(t.Context(), orders, 50001)
		slices.Sort(got)
		if err != nil || o.asks != test.asks || test.asks < maxAnswers && !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v after %d questions; want %q after %d", what, got, err, o.asks, test.want, test.asks)
		}
	}
	failing := &rotatingResolver{next: func(int) (string, error) { return "", io.EOF }}
	if got, err := (&daprResolver{dapr: failing}).Find(t.Context(), orders, 50001); err != io.EOF || got != nil {
		t.Errorf("%q, %v from a resolver that fails", got, err)
	}
}

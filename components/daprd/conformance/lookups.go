package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	nr "github.com/dapr/components-contrib/nameresolution"
)

var lookupChecks = []check{
	{"Lookup", "Known", "finds an app where it runs", "", checkKnown},
	{"Lookup", "Own", "finds its own app, which daprd asks for on every proxied call that comes in", "", checkOwn},
	{"Lookup", "Unknown", "leads nowhere for an app that does not run", "", checkUnknown},
	{"Lookup", "Refuses", "says by an error that it does not know the app", Refuses, checkRefuses},
	{"Lookup", "Empty", "refuses an empty app-id", "", checkEmpty},
	{"Lookup", "Namespaces", "tells apps with the same id in two namespaces apart", Namespaces, checkNamespaces},
	{"Lookup", "Ports", "returns the port of the callee, also if the caller has another", Ports, checkPorts},
	{"Lookup", "IPv6", "returns an IPv6 address in brackets, as gRPC takes it", IPv6, checkIPv6},
	{"Lookup", "Spread", "spreads lookups over three instances: each gets a tenth at least", "", checkSpread},
	{"Lookup", "Multi", "returns all addresses, if it has ResolveIDMulti", "", checkMulti},
	{"Lookup", "Concurrent", "answers 32 goroutines at once, while an instance joins", "", checkConcurrent},
}

func checkKnown(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	w.register(t, i)
	w.start(t).awaitOnly(w.Within, request(i.AppID), i)
}

func checkOwn(t *testing.T, w *world) {
	s := w.start(t)
	if w.Register != nil {
		w.Register(t, s.self)
	} else if w.Serve != nil {
		w.Serve(t, s.self)
	}
	s.awaitOnly(w.Within, request(s.self.AppID), s.self)
}

func checkUnknown(t *testing.T, w *world) {
	s := w.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), w.limit)
	defer cancel()
	if got, err := s.find(ctx, request(w.app("nobody"))); err == nil {
		t.Errorf("an app that does not run is at %q", got)
	}
}

func checkRefuses(t *testing.T, w *world) {
	s := w.start(t)
	if got, err := s.ResolveID(t.Context(), request(w.app("nobody"))); err == nil {
		t.Errorf("the answer is %q without an error", got)
	}
}

func checkEmpty(t *testing.T, w *world) {
	s := w.start(t)
	bounded(t, w.limit, "ResolveID", func() {
		if got, err := s.ResolveID(t.Context(), request("")); err == nil {
			t.Errorf("the answer is %q without an error", got)
		}
	})
}

func checkNamespaces(t *testing.T, w *world) {
	here := w.instance(w.app("orders"))
	there := w.instance(here.AppID)
	there.Namespace = "finance"
	w.register(t, here)
	w.register(t, there)
	s := w.start(t)
	elsewhere := request(here.AppID)
	elsewhere.Namespace = "finance"
	s.never = []string{endpointOf(there)}
	s.awaitOnly(w.Within, request(here.AppID), here)
	s.never = []string{endpointOf(here)}
	s.awaitOnly(w.Within, elsewhere, there)
	elsewhere.Namespace = "nowhere"
	if got, err := s.find(t.Context(), elsewhere); err == nil {
		t.Errorf("in a namespace without the app it is at %q", got)
	}
}

func checkPorts(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	s := w.start(t)
	s.never = []string{endpointOf(i)} // with the port of the caller
	i.DaprInternalPort++
	w.register(t, i)
	s.awaitOnly(w.Within, request(i.AppID), i)
}

func checkIPv6(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	i.Address = w.IPv6
	w.register(t, i)
	w.start(t).awaitOnly(w.Within, request(i.AppID), i)
}

// three starts an app with three instances.
func (w *world) three(t *testing.T) (app string, instances []nr.Instance) {
	t.Helper()
	app = w.app("orders")
	for range 3 {
		i := w.instance(app)
		w.register(t, i)
		instances = append(instances, i)
	}
	return app, instances
}

func checkSpread(t *testing.T, w *world) {
	app, instances := w.three(t)
	s := w.start(t)
	s.awaitOnly(w.Within, request(app), instances...)
	const lookups = 300
	got := map[string]int{}
	for range lookups {
		endpoints, err := s.find(t.Context(), request(app))
		if err != nil {
			t.Fatal(err)
		}
		for _, endpoint := range endpoints {
			got[endpoint]++
		}
	}
	for _, i := range instances {
		if n := got[endpointOf(i)]; n < lookups/10 {
			t.Errorf("%s got %d of %d lookups", endpointOf(i), n, lookups)
		}
	}
}

func checkMulti(t *testing.T, w *world) {
	app, instances := w.three(t)
	s := w.start(t)
	multi, ok := s.Resolver.(nr.ResolverMulti)
	if !ok {
		t.Skip("the resolver has no ResolveIDMulti")
	}
	var want []string
	for _, i := range instances {
		want = append(want, endpointOf(i))
	}
	slices.Sort(want)
	var got nr.AddressList
	var err error
	eventually(t, w.Within, func() bool {
		got, err = multi.ResolveIDMulti(t.Context(), request(app))
		slices.Sort(got)
		return err == nil && slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("it returns %q (%v), want %q", got, err, want) })
}

func checkConcurrent(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	w.register(t, i)
	s := w.start(t)
	s.awaitOnly(w.Within, request(i.AppID), i)
	nobody := request(w.app("nobody"))
	var lookups sync.WaitGroup
	for range 32 {
		lookups.Go(func() {
			for range 50 {
				if _, err := s.ResolveID(t.Context(), request(i.AppID)); err != nil {
					t.Error(err)
					return
				}
			}
			_, _ = s.ResolveID(t.Context(), nobody)
		})
	}
	w.register(t, w.instance(i.AppID))
	bounded(t, 3*w.limit, "32 goroutines with lookups", lookups.Wait)
}

package dial

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

func TestWhatIsNotReachedIsReported(t *testing.T) {
	gw, other := startGateway(t), startGateway(t)
	w := newTestDialer(t)
	gateways := map[string][]string{"east": {gw.Address}, "north": {other.Address}}
	w.setRoutes(gateways, gatewayRoute("east", 0), gatewayRoute("north", 1))
	conn := w.dial(t)
	if got := mustCall(t, conn); got != gw.Address {
		t.Fatalf("reached %s, want east", got)
	}
	gw.stop()
	callAsDaprd(t, conn)
	east := func(all []nameresolution.Unreached) bool {
		return len(all) == 1 && all[0].Cluster == "east" && all[0].Gateway == "" && all[0].App == catalog.App{} && all[0].Why != ""
	}
	w.waitForReport(t, east)
	// The lease ends, so no call goes there. The report stays until the gateway is reached again.
	lapsed := gatewayRoute("east", 0)
	lapsed.State, lapsed.Addresses = catalog.LeaseExpired, nil
	w.setRoutes(gateways, lapsed, gatewayRoute("north", 1))
	time.Sleep(5 * reportDelay)
	w.waitForReport(t, east)
	startGatewayAt(t, gw.Address)
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
}

func TestAnAppThatSaysNothingIsReported(t *testing.T) {
	f, p := &freezer{}, &timedServer{}
	gw := f.proxy(t, startGateway(t, p.register).Address)
	w := newEastDialer(t, gw)
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	ended := startInvoke(t, conn)
	w.waitForReport(t, func(all []nameresolution.Unreached) bool {
		return len(all) == 1 && all[0].Cluster == "east" && all[0].Gateway == gw && all[0].App == orders
	})
	f.thaw()
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
}

// A report ends with its cause, though nobody calls any more.
func TestAnAppThatAnswersAgainIsReported(t *testing.T) {
	f, p := &freezer{}, &timedServer{}
	w := newEastDialer(t, f.proxy(t, startGateway(t, p.register).Address))
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- invoke(ctx, conn, time.Minute) }()
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 1 })
	giveUp()
	<-ended
	f.thaw()
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
}

// A gateway that is no longer one of its cluster is not reported, whether calls go elsewhere or not.
func TestAGatewayThatIsReplacedIsNotReported(t *testing.T) {
	for what, after := range map[string]func(w *testDialer, conn func() error, good string){
		"by one that answers": func(w *testDialer, call func() error, good string) {
			w.setEast(good)
			if err := call(); err != nil {
				t.Errorf("call: %v", err)
			}
		},
		"while its cluster's lease has ended": func(w *testDialer, _ func() error, good string) {
			ended := gatewayRoute("east", 0)
			ended.State, ended.Addresses = catalog.LeaseExpired, nil
			w.setRoutes(map[string][]string{"east": {good}}, ended)
		},
		"as the selection of the app ends": func(w *testDialer, _ func() error, _ string) {
			w.views.Store(&catalog.View{Gateways: &catalog.Gateways{Domain: catalog.DefaultDomain}})
		},
	} {
		t.Run(what, func(t *testing.T) {
			gw := startGateway(t)
			w := newEastDialer(t, deadAddress(t))
			conn := w.dial(t)
			if _, err := call(t, conn); err == nil {
				t.Fatal("a call by a gateway that does not listen succeeds")
			}
			w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 1 })
			after(w, func() error { _, err := call(t, conn); return err }, gw.Address)
			w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
		})
	}
}

// TestWhatFailuresSay has a row for each way in which an endpoint is not reached, first alone, and
// then with another app that is reached through the same gateway before or after.
func TestWhatFailuresSay(t *testing.T) {
	const theCluster, theApp, nothing = "the cluster", "the app", ""
	for what, c := range map[string]struct {
		err                  string // of the attempt to connect; empty: it is connected and does not answer
		alone, before, after string // what is reported: alone, and where the other app is reached before the failure or after it
	}{
		"the gateway refuses connections":     {"dial tcp: connection refused", theCluster, theApp, nothing},
		"the handshake gets no answer":        {"authentication handshake failed: context deadline exceeded", theCluster, theApp, nothing},
		"the callee's root is missing here":   {"authentication handshake failed: x509: certificate signed by unknown authority", theCluster, theApp, nothing},
		"the caller's root is missing there":  {"error reading server preface: remote error: tls: unknown certificate authority", theCluster, theApp, nothing},
		"the callee refuses the certificate":  {"error reading server preface: remote error: tls: bad certificate", theCluster, theApp, nothing},
		"the gateway knows no such app":       {"authentication handshake failed: remote error: tls: unrecognized name", nothing, nothing, nothing},
		"the gateway has no instance":         {"authentication handshake failed: remote error: tls: internal error", nothing, nothing, nothing},
		"the gateway closes without an alert": {"authentication handshake failed: EOF", nothing, nothing, nothing},
		"the callee hangs":                    {"", theApp, theApp, theApp},
	} {
		t.Run(what, func(t *testing.T) {
			endpointOf := func(app string) *endpoint {
				return &endpoint{endpointKey: endpointKey{"host", "192.0.2.1:15443"}, cluster: "east", channel: &channel{app: catalog.App{Namespace: "default", ID: app}}}
			}
			for when, want := range map[string]string{"alone": c.alone, "before": c.before, "after": c.after} {
				r := &reachability{endpoints: map[*endpoint]reachState{}}
				failing, other := endpointOf("orders"), endpointOf("ledger")
				failing.state, failing.err = connectivity.TransientFailure, errors.New(c.err)
				if c.err == "" {
					failing.state, failing.err = connectivity.Ready, nil
					failing.unresponsive.Store(true)
				}
				other.state = connectivity.Ready
				if when == "before" {
					r.update(other)
				}
				r.update(failing)
				if when == "after" {
					r.update(other)
				}
				got := nothing
				for _, u := range r.summarize() {
					switch {
					case u.App == orders && u.Gateway == failing.address:
						got += theApp
					case u.App == catalog.App{}:
						got += theCluster
					}
				}
				if got != want {
					t.Errorf("%s: %q is reported, want %q", when, got, want)
				}
			}
		})
	}
}

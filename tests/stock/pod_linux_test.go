package stock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// pod is an app and a stock sidecar in a network namespace of its own.
type pod struct {
	*sandbox.Daprd
	in      *cluster
	behind  *sandbox.App
	place   *network.Place
	address netip.Addr
	member  *member // in Kubernetes
}

// resolution is the part of a Dapr Configuration that a sidecar resolves names by.
type resolution struct {
	component, configuration string     // the latter in YAML's flow style
	dns                      netip.Addr // whom it asks; the cluster's service by default
	args                     []string   // more of daprd's
}

// configuration is a Dapr Configuration as users write it.
const configuration = `apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: stock}
spec:
  tracing: {samplingRate: "1"}
  nameResolution:
    component: %s
    version: v1
    configuration: %s
`

// pod starts an app and its sidecar at the next address of the cluster, and waits until
// both are healthy. Nobody is told where it is.
func (c *cluster) pod(t *testing.T, id string, r resolution) *pod {
	t.Helper()
	c.pods++
	p := &pod{in: c, address: c.address(10 + c.pods)}
	var box *sandbox.Sandbox
	p.place, box = c.lab.at(t, p.address)
	app := catalog.App{Namespace: namespace, ID: id}
	var err error
	if p.behind, err = box.App(sandbox.AppOptions{Cluster: c.name, App: app, Instance: p.address.String()}); err != nil {
		t.Fatal(err)
	}
	if !r.dns.IsValid() {
		r.dns = c.dns().Addr()
	}
	p.Daprd, err = box.Daprd(meshtest.Within(t, meshtest.Patience), sandbox.DaprdOptions{
		Name: fmt.Sprintf("daprd-%s-%s-%d", c.name, id, c.pods), Stock: true, App: app, AppAddress: p.behind.Address,
		Internal: netip.AddrPortFrom(p.address, port).String(), Sentry: c.Sentry, Args: r.args,
		Configuration: fmt.Sprintf(configuration, r.component, r.configuration),
		ResolvConf:    fmt.Sprintf("nameserver %s\n", r.dns),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.Name(), p.Tail(15))
		}
	})
	return p
}

// known is a pod that an AppInstance names.
func (c *cluster) known(t *testing.T, id string, r resolution) *pod {
	t.Helper()
	p := c.pod(t, id, r)
	c.apply(t, p.object())
	return p
}

// object is the AppInstance of a pod.
func (p *pod) object() string {
	return instance(p.App.ID, strings.ReplaceAll(p.address.String(), ".", "-"), p.Internal)
}

// traceID is that of every call, and traceParent says so.
const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceParent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// call calls an app through the sidecar.
func (p *pod) call(ctx context.Context, id string) (*sandbox.Reply, error) {
	return p.Invoke(ctx, id, "hello", http.Header{"Traceparent": {traceParent}})
}

// reaches waits until a call is answered by a cluster, with the caller's trace.
func (p *pod) reaches(t *testing.T, id string, want *cluster) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		reply, err := p.call(meshtest.Within(t, meshtest.Attempt), id)
		switch {
		case err != nil:
			return err
		case reply.Cluster != want.name:
			return fmt.Errorf("%s in %s answers, want %s", id, reply.Cluster, want.name)
		case !strings.Contains(reply.Header["Traceparent"], traceID):
			return fmt.Errorf("%s was called with the trace %q, want %s", id, reply.Header["Traceparent"], traceID)
		}
		return nil
	})
}

// fails waits until a call fails with these words of daprd's: what an app is told of follows
// what happens after a moment. A call that is answered fails the test at once.
func (p *pod) fails(t *testing.T, id string, words ...string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		begin := time.Now()
		reply, err := p.call(meshtest.Within(t, meshtest.Patience), id)
		var failed *sandbox.InvokeError
		if !errors.As(err, &failed) {
			t.Fatalf("call of %s: %+v, %v, want an error of daprd's", id, reply, err)
		}
		for _, w := range words {
			if !strings.Contains(failed.Body, w) {
				return fmt.Errorf("daprd says %q of a call of %s, want %q", failed.Body, id, w)
			}
		}
		t.Logf("after %s: %s", time.Since(begin).Round(time.Millisecond), failed.Body)
		return nil
	})
}

// lookup asks the DNS server that the pod asks, from its address.
func (p *pod) lookup(ctx context.Context, name string) ([]string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return p.place.Dial(ctx, network, p.in.dns().String())
	}}
	return r.LookupHost(ctx, name)
}

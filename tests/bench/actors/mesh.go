package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// mesh is two clusters. East has an app that is called as a service and hosts actors, west a caller.
type mesh struct {
	*sandbox.Sandbox
	west, east           *sandbox.Cluster
	caller, local        *sandbox.Sidecar
	relayWest, relayEast *sandbox.Sidecar
	bridges              int
	host                 *http.Server
	child                *measure.Child
	client               *http.Client
}

// way is a way to call the app, with what calls took and cost: milliseconds each.
type way struct {
	name          string
	call          func(ctx context.Context, n int) error
	p50, p99, cpu measure.Samples
}

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// objects are those of east, and those of west with the address of east's gateway.
const (
	eastObjects = `apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: west}
spec: {}
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: carts}
spec: {allow: [{cluster: west}]}
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: relay-east}
spec: {allow: [{cluster: west}]}
---
apiVersion: isthmus.dev/v1alpha1
kind: ActorType
metadata: {namespace: shop, name: cart}
spec: {type: Cart, owner: east, allow: [{cluster: west, app: checkout}]}
`
	westObjects = `apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec: {gateways: [{address: %q}]}
---
apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints: [{app: carts}, {app: relay-west}]
  actors: [{type: Cart}]
---
apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: relay-west}
spec:
  endpoints: [{app: relay-east}]
`
)

// start starts everything, and waits until each way leads to the app.
func (m *mesh) start(ctx context.Context) error {
	m.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	for name, into := range map[string]**sandbox.Cluster{"west": &m.west, "east": &m.east} {
		if *into, err = m.Cluster(ctx, sandbox.ClusterOptions{Name: name, Authority: authority}); err != nil {
			return err
		}
		if _, err := (*into).Placement(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(m.apply(ctx, m.east, eastObjects), m.apply(ctx, m.west, fmt.Sprintf(westObjects, m.east.Gateway))); err != nil {
		return err
	}
	host, err := m.serve()
	if err != nil {
		return err
	}
	if m.child, err = measure.StartChild(ctx, "relay", measure.None{}); err != nil {
		return err
	}
	relays, err := measure.Ask[string](m.child, "address", measure.None{})
	if err != nil {
		return err
	}
	var none *sandbox.Sidecar // the app's own
	for _, s := range []struct {
		in   *sandbox.Cluster
		id   string
		at   string
		into **sandbox.Sidecar
	}{
		{m.east, "carts", host, &none}, {m.east, "neighbour", "", &m.local}, {m.east, "relay-east", relays, &m.relayEast},
		{m.west, "relay-west", relays, &m.relayWest}, {m.west, "checkout", "", &m.caller},
	} {
		if *s.into, err = s.in.Sidecar(ctx, sandbox.SidecarOptions{App: app(s.id), AppAddress: s.at}); err != nil {
			return err
		}
	}
	if _, err := m.east.Bridge(ctx, "shop", ""); err != nil {
		return err
	}
	return m.scale(ctx, 1)
}

func (m *mesh) close() (err error) {
	if m.child != nil {
		err = m.child.Stop()
	}
	if m.host != nil {
		err = errors.Join(err, m.host.Close())
	}
	return err
}

// apply writes objects as people do.
func (m *mesh) apply(ctx context.Context, c *sandbox.Cluster, objects string) error {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "apply", "-f", "-")
	cmd.Env, cmd.Stdin = append(os.Environ(), c.CommandLine()...), strings.NewReader(objects)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply in %s: %w: %s", c.Name, err, out)
	}
	return nil
}

// scale has so many replicas of west's bridge run, and waits until each actor can be called.
func (m *mesh) scale(ctx context.Context, replicas int) error {
	for ; m.bridges < replicas; m.bridges++ {
		instance := ""
		if m.bridges > 0 {
			instance = fmt.Sprint("-", m.bridges)
		}
		if _, err := m.west.Bridge(ctx, "shop", instance); err != nil {
			return err
		}
	}
	for _, w := range m.ways() {
		calm := 0 // placement spreads actors anew, for a while
		err := measure.Await(ctx, w.name, 100*time.Millisecond, func() error {
			for i := range actors {
				if err := w.call(ctx, i); err != nil {
					calm = 0
					return err
				}
			}
			if calm++; calm < 3 {
				return errors.New("not calm yet")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serve starts the app: it answers with what it got, as a service and as an actor.
func (m *mesh) serve() (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // the caller sees what is missing
		_, _ = w.Write(text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dapr/config", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"entities": []string{"Cart"}, "actorIdleTimeout": "10m"})
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("DELETE /actors/{type}/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /actors/{type}/{id}/method/echo", echo)
	mux.HandleFunc("POST /echo", echo)
	m.host = &http.Server{Handler: mux, ReadHeaderTimeout: measure.Patience}
	go func() { _ = m.host.Serve(listener) }()
	return listener.Addr().String(), nil
}

// actors is how many are called.
const actors = 256

// ways are the ways to the app; the first is what the others are compared with, the last is bridged.
func (m *mesh) ways() []*way {
	actor := func(by *sandbox.Sidecar) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			return m.post(ctx, by.ActorURL(fmt.Sprint("Cart/", n%actors), "echo"), nil)
		}
	}
	next := http.Header{nextHeader: {m.relayWest.InvokeURL("relay-east", "relay"), m.relayEast.InvokeURL("carts", "echo")}}
	return []*way{
		{name: "service invocation, other cluster", call: func(ctx context.Context, _ int) error { return m.post(ctx, m.caller.InvokeURL("carts", "echo"), nil) }},
		{name: "actor, within its cluster", call: actor(m.local)},
		{name: "the floor: relays for bridges", call: func(ctx context.Context, _ int) error {
			return m.post(ctx, m.caller.InvokeURL("relay-west", "relay"), next)
		}},
		{name: "actor, other cluster", call: actor(m.caller)},
	}
}

// body is that of each call.
var body = bytes.Repeat([]byte{'x'}, 1024)

func (m *mesh) post(ctx context.Context, url string, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || len(text) != len(body)) {
		err = fmt.Errorf("%s: status %d, %d bytes: %.300s", url, res.StatusCode, len(text), text)
	}
	return err
}

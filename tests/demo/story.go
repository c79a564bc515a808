package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// tell goes through the steps. The first that does not do what it says ends it.
func (w *world) tell(ctx context.Context, p *printer) error {
	p.say("To repeat what follows in a second terminal:")
	p.command("export PATH=" + filepath.Dir(must("isthmus")) + ":$PATH " + strings.Join(w.west.CommandLine(), " "))
	if err := w.showConsoles(ctx, p); err != nil {
		return err
	}
	for _, step := range []struct {
		title string
		do    func(context.Context, *printer) error
	}{
		{"Who may call whom is said in objects, one file per cluster", w.objects},
		{"A local call: checkout calls orders by its app-id", w.localCall},
		{"The same app-id, answered from the other cluster: that is what cart's selection says", w.remoteCall},
		{"A call that is refused, and why", w.refusal},
		{"A selection changes while calls run: no restart, no failed call", w.change},
		{"The only local instance is killed: calls go on in the other cluster", w.kill},
		{"One trace covers both clusters", w.trace},
		{"cart calls an actor that lives in the other cluster, by the usual actor API", w.actor},
	} {
		p.step(step.title)
		if err := step.do(ctx, p); err != nil {
			return errors.Join(fmt.Errorf("step %d, %q: %w", p.steps, step.title, err), w.Unexpected())
		}
	}
	p.say("")
	return nil
}

// must is the path of a binary that has already been found once.
func must(name string) string {
	path, err := sandbox.Binary(name)
	if err != nil {
		return name
	}
	return path
}

const eastObjects = `# who may ask east, and what it lets them call
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: west}
spec: {}                      # no gateways: no app of east calls west
---
apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: orders}
spec:
  allow:
  - {cluster: west, namespace: shop}
`

const westObjects = `# where east is, and what two apps of west may call
apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: east}
spec:
  gateways: [{address: "%s"}]
---
apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders               # local first, then every cluster that exports it
---
apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: cart}
spec:
  endpoints:
  - app: orders
    routes:
    - {cluster: east}
`

const checkoutToEast = `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders
    routes:
    - {cluster: east}
    - {cluster: local, priority: 1}
`

const checkoutToLocal = `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - app: orders
`

func (w *world) objects(ctx context.Context, p *printer) error {
	east := w.east.CommandLine()
	if err := w.apply(ctx, p, "east.yaml", eastObjects, east); err != nil {
		return err
	}
	return w.apply(ctx, p, "west.yaml", fmt.Sprintf(westObjects, w.east.Gateway), nil)
}

// apply writes a file, shows it and applies it. env is that of another cluster than
// west, or nil.
func (w *world) apply(ctx context.Context, p *printer, name, text string, env []string, flags ...string) error {
	path := filepath.Join(w.Dir(), name)
	if _, err := os.Stat(path); err != nil { // it has not been shown
		p.say("  %s:", name)
		p.output(text)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err := w.isthmus(ctx, p, env, append([]string{"apply", "-f", path}, flags...)...)
	return err
}

// isthmus shows a command, runs it and shows what it printed.
func (w *world) isthmus(ctx context.Context, p *printer, env []string, args ...string) (string, error) {
	shown := "isthmus " + strings.Join(args, " ")
	if env != nil {
		shown = strings.Join(env, " ") + " " + shown
	} else {
		env = w.west.CommandLine()
	}
	p.command(shown)
	cmd := exec.CommandContext(ctx, must("isthmus"), args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	p.output(out.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run %s: %w", shown, err)
	}
	if err != nil && args[0] == "apply" {
		return "", fmt.Errorf("%s: %w", shown, err)
	}
	return out.String(), nil
}

// call shows a call, makes it and shows who answered.
func (w *world) call(ctx context.Context, p *printer, from *sandbox.Sidecar, id string, header http.Header) (*sandbox.Reply, error) {
	flags := ""
	for key, values := range header {
		flags += fmt.Sprintf(" -H '%s: %s'", strings.ToLower(key), values[0])
	}
	p.command("curl -s" + flags + " " + from.InvokeURL(id, "hello"))
	reply, err := from.Invoke(ctx, id, "hello", header)
	if err != nil {
		return nil, err
	}
	p.output(fmt.Sprintf("→ answered by %s/%s in %s", reply.Namespace, reply.App, reply.Cluster))
	return reply, nil
}

// answeredIn checks in which cluster a call was answered. Right after the start a
// peer's first word may still be on its way, so it asks for a while.
func (w *world) answeredIn(ctx context.Context, p *printer, from *sandbox.Sidecar, id, cluster string) error {
	if err := eventually(ctx, time.Minute, func() error {
		reply, err := from.Invoke(ctx, id, "hello", nil)
		if err == nil && reply.Cluster != cluster {
			err = fmt.Errorf("%s answered, not %s", reply.Cluster, cluster)
		}
		return err
	}); err != nil {
		return err
	}
	reply, err := w.call(ctx, p, from, id, nil)
	if err == nil && reply.Cluster != cluster {
		err = fmt.Errorf("%s answered, not %s", reply.Cluster, cluster)
	}
	return err
}

// eventually asks until there is no error, or returns the last one.
func eventually(ctx context.Context, limit time.Duration, ask func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (w *world) localCall(ctx context.Context, p *printer) error {
	if err := w.answeredIn(ctx, p, w.checkout, "orders", "west"); err != nil {
		return err
	}
	if err := w.resolves(ctx, p, "checkout", "west"); err != nil {
		return err
	}
	return w.dig(ctx, p)
}

func (w *world) remoteCall(ctx context.Context, p *printer) error {
	if err := w.answeredIn(ctx, p, w.cart, "orders", "east"); err != nil {
		return err
	}
	return w.resolves(ctx, p, "cart", "east")
}

// resolves asks the service where a caller finds orders.
func (w *world) resolves(ctx context.Context, p *printer, caller, cluster string) error {
	out, err := w.isthmus(ctx, p, nil, "explain", "--from", "shop/"+caller, "orders")
	if err == nil && !strings.Contains(out, cluster) {
		err = fmt.Errorf("explain does not name %s:\n%s", cluster, out)
	}
	return err
}

func (w *world) refusal(ctx context.Context, p *printer) error {
	p.command("curl -s " + w.cart.InvokeURL("ledger", "hello"))
	_, err := w.cart.Invoke(ctx, "ledger", "hello", nil)
	var refused *sandbox.InvokeError
	if !errors.As(err, &refused) {
		return fmt.Errorf("the call to ledger was not refused: %w", err)
	}
	p.output(refused.Body)
	if !strings.Contains(refused.Body, "denied") {
		return errors.New("the refusal does not say denied")
	}
	out, err := w.isthmus(ctx, p, nil, "explain", "--from", "shop/cart", "ledger")
	if err == nil && (!strings.Contains(out, "denied") || !strings.Contains(out, "AppEndpoints shop/cart")) {
		err = fmt.Errorf("explain does not name the selection that refuses:\n%s", out)
	}
	return err
}

// trace follows one call over both clusters.
func (w *world) trace(ctx context.Context, p *printer) error {
	id, header := traceparent()
	if _, err := w.call(ctx, p, w.cart, "orders", header); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	spans, err := w.traces.Wait(wait, id, func(spans []collector.Span) bool {
		in := map[string]bool{}
		for i := range spans {
			in[clusterOf(&spans[i])+" "+spans[i].Resource["service.name"]] = true
		}
		return in["west cart"] && in["east orders"] && hasLookup(spans)
	})
	p.say("  trace %s, from the spans that both clusters exported:", id)
	p.output(tree(shown(spans)))
	if err != nil {
		return fmt.Errorf("trace %s does not have spans from both clusters and a lookup: %w", id, err)
	}
	return nil
}

// traceparent is a new sampled trace (W3C Trace Context, 3.2).
func traceparent() (id string, header http.Header) {
	var random [24]byte
	rand.Read(random[:]) //nolint:errcheck // never fails
	id = hex.EncodeToString(random[:16])
	return id, http.Header{"Traceparent": {"00-" + id + "-" + hex.EncodeToString(random[16:]) + "-01"}}
}

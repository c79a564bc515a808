// Package demo shows what Isthmus does: it starts two clusters on loopback, with real
// daprd, Sentry and mTLS, and goes through a story in which every step is checked.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// Options say how to run the demo.
type Options struct {
	Out   io.Writer
	Color bool // emphasis by terminal escapes
	Once  bool // return after the last step rather than when ctx ends
}

// startTimeout bounds the start of both clusters.
const startTimeout = 2 * time.Minute

// Run goes through the story. It returns nil only if every step did what it says.
// When it returns, all processes are gone; their logs stay if a step failed, other
// than by ctx ending.
func Run(ctx context.Context, o Options) (err error) {
	dir, remove, err := sandbox.Workspace()
	if err != nil {
		return err
	}
	p := &printer{out: o.Out, color: o.Color}
	w, err := open(dir)
	if err != nil {
		return errors.Join(err, remove())
	}
	defer func() {
		p.say("Stopping what was started …")
		stopped := ctx.Err() != nil // by the user, who has no use for the logs
		closed := w.close()
		err = errors.Join(err, closed)
		if err != nil && (closed != nil || !stopped) {
			p.say("Logs and files are kept in %s.", dir)
			return
		}
		err = errors.Join(err, remove())
	}()
	if err := w.start(ctx, p); err != nil {
		return quiet(ctx, err)
	}
	if err := w.tell(ctx, p); err != nil {
		return quiet(ctx, err)
	}
	if o.Once {
		p.say("Every step did what it says.")
		return nil
	}
	p.say("Everything stays up for you to try. Ctrl-C stops and removes it.")
	<-ctx.Done()
	return nil
}

// quiet is err, unless it only says that the user has stopped the demo.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped before the last step: %w", context.Cause(ctx))
	}
	return err
}

// world is what the story happens in.
type world struct {
	*sandbox.Sandbox
	log    *os.File
	traces *collector.Collector

	west, east             *sandbox.Cluster
	checkout, cart, orders *sandbox.Sidecar // in west
	dns                    string           // where west answers DNS
}

func open(dir string) (*world, error) {
	log, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s, err := sandbox.New(dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return nil, err
	}
	return &world{Sandbox: s, log: log}, nil
}

func (w *world) close() error { return errors.Join(w.Close(), w.log.Close()) }

func shop(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// start starts both clusters and says so as it goes.
func (w *world) start(ctx context.Context, p *printer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p.title("Two clusters on this machine")
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	if w.traces, err = w.Traces(); err != nil {
		return err
	}
	if w.dns, err = dnsAddress(); err != nil {
		return err
	}
	for _, cluster := range []struct {
		name   string
		into   **sandbox.Cluster
		listen map[string]any
	}{{"west", &w.west, listenDNS(w.dns)}, {"east", &w.east, nil}} {
		p.progress("%s: Sentry (below one shared root), isthmus serve, and Dapr's placement service", cluster.name)
		*cluster.into, err = w.Cluster(ctx, sandbox.ClusterOptions{Name: cluster.name, Authority: authority, Traces: w.traces.Endpoint(), Listen: cluster.listen})
		if err != nil {
			return err
		}
		if _, err := (*cluster.into).Placement(ctx); err != nil {
			return err
		}
	}
	var ledger, eastOrders *sandbox.Sidecar
	for _, sidecar := range []struct {
		in   *sandbox.Cluster
		id   string
		into **sandbox.Sidecar
	}{{w.west, "checkout", &w.checkout}, {w.west, "cart", &w.cart}, {w.west, "orders", &w.orders},
		{w.east, "orders", &eastOrders}, {w.east, "ledger", &ledger}} {
		p.progress("%s: daprd and an app for shop/%s", sidecar.in.Name, sidecar.id)
		if *sidecar.into, err = sidecar.in.Sidecar(ctx, sandbox.SidecarOptions{App: shop(sidecar.id)}); err != nil {
			return err
		}
	}
	p.say("")
	return nil
}

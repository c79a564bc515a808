package monitoring

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

func lasting(life time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(life) }
}

func TestPromtoolTakesTheRules(t *testing.T) {
	needs(t)
	promtool := programstest.Path(t, "promtool")
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint-fatal", filepath.Join(folder, "rules.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	quickened := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(quickened, []byte(quick(rulesText(t))), 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", quickened).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fault is what makes alerts fire, and what ends them.
type fault struct {
	what   string
	alerts []string
	begin  func(ctx context.Context) // what it starts ends with ctx
	end    func()
}

// TestEachAlertFiresAndEnds begins with all well: then no alert fires, and each panel has data.
func TestEachAlertFiresAndEnds(t *testing.T) {
	st, parent := newStage(t), t
	st.calls()
	st.calm("in the beginning")
	st.refusalsShow()
	st.panelsHaveData()
	covered := map[string]bool{}
	for _, f := range st.faults() {
		for _, name := range f.alerts {
			covered[name] = true
		}
		t.Run(f.what, func(t *testing.T) {
			st.t = t
			defer func() { st.t = parent }()
			ctx, cancel := context.WithCancel(t.Context())
			end := sync.OnceFunc(func() {
				cancel()
				f.end()
			})
			defer end() // lest the next fault meets this one
			st.calm("before: "+f.what, f.alerts...)
			f.begin(ctx)
			for _, name := range f.alerts {
				st.fires(name)
			}
		})
	}
	st.calm("after all faults") // side by side, as some alerts look a minute back
	for _, r := range rules(t) {
		if !covered[r.Alert] {
			t.Errorf("no fault makes %s fire", r.Alert)
		}
	}
}

// fires waits until an alert does.
func (st *stage) fires(name string) {
	st.t.Helper()
	meshtest.Eventually(st.t, meshtest.Patience, func() error {
		firing, err := st.firing()
		a, ok := firing[name]
		if !ok && err == nil {
			err = fmt.Errorf("%s does not fire; those that do: %v", name, keys(firing))
		}
		if text := a.Annotations["summary"] + a.Annotations["description"]; strings.Contains(text, "<no value>") || strings.Contains(text, "error expanding") {
			st.t.Fatalf("%s says %q", name, text)
		}
		return err
	})
}

func keys[V any](m map[string]V) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// calm waits until no alert fires, or none of these.
func (st *stage) calm(when string, alerts ...string) {
	st.t.Helper()
	meshtest.Eventually(st.t, meshtest.Patience, func() error {
		firing, err := st.firing()
		if len(alerts) > 0 {
			maps.DeleteFunc(firing, func(name string, _ servers.Alert) bool { return !slices.Contains(alerts, name) })
		}
		if len(firing) > 0 {
			err = fmt.Errorf("%s, these fire: %v", when, firing)
		}
		return err
	})
}

// calls waits until a call from west to east is answered.
func (st *stage) calls() {
	st.t.Helper()
	meshtest.Eventually(st.t, meshtest.Patience, func() error {
		_, err := st.checkout.Invoke(meshtest.Within(st.t, meshtest.Attempt), "orders", "hello", nil)
		return err
	})
}

// refused makes a call that the lookup refuses.
func (st *stage) refused() {
	st.t.Helper()
	if _, err := st.checkout.Invoke(meshtest.Within(st.t, meshtest.Attempt), "ledger", "hello", nil); err == nil {
		st.t.Fatal("a call of an app that is not selected went through")
	}
}

// refusalsShow has a refused call in the next scrape of its sidecar, and in the first scrape of the
// service after the sidecar's report.
func (st *stage) refusalsShow() {
	st.t.Helper()
	before := scraped(st.t, st.checkout.Metrics)
	st.refused()
	after := scraped(st.t, st.checkout.Metrics)
	if line := `dapr_isthmus_lookups_refused_total{callee="",callee_namespace="",outcome="denied"} 1`; strings.Contains(before, line) || !strings.Contains(after, line) {
		st.t.Errorf("a scrape after the refused call has no %s", line)
	}
	line := `isthmus_refused_calls_total{by="lookup",caller="checkout",caller_cluster="local",caller_namespace="shop",outcome="denied"} 1`
	began := time.Now()
	meshtest.Eventually(st.t, meshtest.Patience, func() error {
		if !strings.Contains(scraped(st.t, st.west.Admin), line) {
			return fmt.Errorf("no %s", line)
		}
		return nil
	})
	st.t.Logf("the service has it after %v", time.Since(began).Round(time.Millisecond))
}

// panelsHaveData asks each query of each dashboard, while something of everything happens.
func (st *stage) panelsHaveData() {
	st.t.Helper()
	names := 0
	for panels, tried := dashboards(st.t), 0; tried < 3; tried++ {
		for range 8 { // longer than a range
			st.calls()
			st.refused()
			c, err := knock(st.east, "nobody") // the gateway refuses it
			must(st.t, err)
			c.Close()
			st.apply(st.west, meshtest.Selection("shop", "checkout", "app: orders", fmt.Sprintf("app: other-%d", names)))
			names++
			st.query()
			time.Sleep(time.Second)
		}
		var missing []string
		for file, all := range panels {
			for _, p := range all {
				for _, q := range p.Targets {
					for _, cluster := range []string{"west", "east"} { // some things happen in one only
						expr := strings.NewReplacer("$__rate_interval", "8s", "$cluster", cluster, "[10m]", "[8s]").Replace(q.Expr)
						found, err := st.prometheus.Query(st.t.Context(), expr)
						if err != nil {
							st.t.Fatalf("%s: %s: %v", file, p.Title, err)
						}
						if len(found) > 0 {
							break
						}
						if cluster == "east" {
							missing = append(missing, fmt.Sprint(file, ": ", p.Title, ": ", expr))
						}
					}
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		if tried == 2 {
			st.t.Fatalf("without data:\n%s", strings.Join(missing, "\n"))
		}
	}
}

func (st *stage) faults() []fault {
	start := func(r interface{ Restart(context.Context) error }) {
		st.t.Helper()
		must(st.t, r.Restart(meshtest.Within(st.t, meshtest.Patience)))
	}
	bad := filepath.Join(st.files, "bad.yaml")
	var held []net.Conn
	var late sync.WaitGroup
	var lacking *sandbox.Sidecar
	var plain *sandbox.Daprd
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(st.t, err)
	st.t.Cleanup(func() { silent.Close() })
	return []fault{
		{"an object that can't be used", []string{"IsthmusObjectsRefused"},
			func(context.Context) { identitytest.Write(st.t, bad, []byte("kind: Nonsense\n")) },
			func() { must(st.t, os.Remove(bad)) }},
		{"a certificate near its end", []string{"IsthmusCertificateExpires"},
			func(context.Context) { st.certify(time.Hour) },
			func() { st.certify(90 * 24 * time.Hour) }},
		{"a certificate that can't be used", []string{"IsthmusCertificateFails"},
			func(context.Context) {
				identitytest.Write(st.t, filepath.Join(st.certificate, "cert.pem"), []byte("nothing"))
			},
			func() { st.certify(90 * 24 * time.Hour) }},
		{"a replica of another version", []string{"IsthmusVersionsApart"},
			func(context.Context) { start(st.northOld) },
			func() { must(st.t, st.northOld.Stop(meshtest.Within(st.t, meshtest.Patience))) }},
		{"a store and a source that are away", []string{"IsthmusStoreStale", "IsthmusSourceStale"},
			func(context.Context) { must(st.t, st.etcd.Kill()) },
			func() { must(st.t, st.etcd.Start(meshtest.Within(st.t, meshtest.Patience))) }},
		{"a replica that starts while its store is away", []string{"IsthmusReplicaNotReady"},
			func(context.Context) {
				must(st.t, st.etcd.Kill())
				must(st.t, st.northOld.Start())
			},
			func() {
				must(st.t, st.etcd.Start(meshtest.Within(st.t, meshtest.Patience)))
				must(st.t, st.northOld.WaitReady(meshtest.Within(st.t, meshtest.Patience)))
				must(st.t, st.northOld.Stop(meshtest.Within(st.t, meshtest.Patience)))
			}},
		{"an export of an app that does not run", []string{"IsthmusExportWithoutInstances"},
			func(context.Context) { st.apply(st.east, meshtest.Export("shop", "ghost", "west")) },
			func() { st.remove(st.east, "AppExport", "shop/ghost") }},
		{"sidecars that lack a root", []string{"IsthmusSidecarsLackRoots"},
			func(context.Context) {
				st.apply(st.west, meshtest.Selection("shop", "cart", "app: orders"))
				st.apply(st.east, meshtest.Export("shop", "orders", "west"))
				lacking = st.app(st.west, "cart", "west")
			},
			func() { must(st.t, lacking.Kill()) }},
		{"a sidecar without mTLS", []string{"IsthmusCheckFinds"},
			func(context.Context) { plain = st.plainApp(st.west, "cart") },
			func() { must(st.t, plain.Kill()) }},
		{"calls that are refused, again and again", []string{"IsthmusRefusalsSurge", "IsthmusCallsFail"},
			func(ctx context.Context) {
				go func() {
					for ctx.Err() == nil {
						_, _ = st.checkout.Invoke(ctx, "ledger", "hello", nil) // refused
						time.Sleep(20 * time.Millisecond)
					}
				}()
			},
			func() {}},
		{"an app that answers with errors", []string{"IsthmusCallSuccessLow"},
			func(ctx context.Context) {
				go func() {
					for ctx.Err() == nil {
						_, _ = st.checkout.Invoke(ctx, "orders", "hello?status=500", nil) // an error
						time.Sleep(20 * time.Millisecond)
					}
				}()
			},
			func() {}},
		{"a gateway with most of its connections taken", []string{"IsthmusGatewayFull"},
			func(context.Context) {
				for range 17 {
					c, err := knock(st.east, "orders")
					must(st.t, err)
					held = append(held, c)
				}
			},
			func() {
				for _, c := range held {
					c.Close()
				}
			}},
		{"an instance that takes connections and says nothing", []string{"IsthmusGatewayRefuses"},
			func(ctx context.Context) {
				st.apply(st.east, fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: shop, name: silent-1}\nspec: {app: silent, address: '%s', check: {tcp: {}, interval: 1s}}\n---\n%s",
					netip.MustParseAddrPort(silent.Addr().String()), meshtest.Export("shop", "silent", "west")))
				go func() {
					for ctx.Err() == nil {
						if c, err := knock(st.east, "silent"); err == nil {
							time.Sleep(1500 * time.Millisecond) // longer than answerTimeout
							c.Close()
						}
					}
				}()
			},
			func() {
				st.remove(st.east, "AppExport", "shop/silent")
				st.remove(st.east, "AppInstance", "shop/silent-1")
			}},
		{"sidecars that read late", []string{"IsthmusDeliverySlow"}, func(ctx context.Context) { late.Go(func() { st.readLate(ctx) }) }, late.Wait},
		{"a peer that comes and goes", []string{"IsthmusPeerFlaps"},
			func(ctx context.Context) {
				go func() {
					for ctx.Err() == nil {
						_ = st.east.Signal(syscall.SIGSTOP)
						time.Sleep(4 * time.Second)
						_ = st.east.Signal(syscall.SIGCONT)
						time.Sleep(3 * time.Second)
					}
				}()
			},
			func() { time.Sleep(5 * time.Second) }},
		{"a box on the way that lets only services through", []string{"IsthmusPeerUnreached"},
			func(ctx context.Context) {
				st.apply(st.west, st.knows(st.east, st.middleBox(st.east.Gateway)))
				go func() {
					for ctx.Err() == nil {
						_, _ = st.checkout.Invoke(ctx, "orders", "hello", nil) // fails
						time.Sleep(200 * time.Millisecond)
					}
				}()
			},
			func() { st.apply(st.west, st.knows(st.east, st.east.Gateway)) }},
		{"a peer that is gone", []string{"IsthmusPeerLost", "IsthmusGatewaysRefused"},
			func(context.Context) { must(st.t, st.east.Kill()) },
			func() { start(st.east) }},
		{"a cluster without a service", []string{"IsthmusDown", "IsthmusViewsOld"},
			func(context.Context) { must(st.t, st.west.Kill()) },
			func() { start(st.west) }},
	}
}

// readLate stops a sidecar, again and again, and changes more of its view meanwhile than fits into
// buffers on the way. After 4 s the service would end the stream, and a busy machine may need those.
func (st *stage) readLate(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		many := make([]string, 15_000)
		for i := range many {
			many[i] = fmt.Sprintf("app: an-app-with-a-long-name-that-nobody-runs-%d-%d", n, i)
		}
		_ = st.checkout.Signal(syscall.SIGSTOP)
		err := st.isthmus(st.west, meshtest.Selection("shop", "checkout", append(many, "app: orders")...), "apply", "-f", "-")
		time.Sleep(2 * time.Second)
		_ = st.checkout.Signal(syscall.SIGCONT)
		if err != nil && ctx.Err() == nil {
			st.t.Error(err)
		}
		time.Sleep(2 * time.Second)
	}
}

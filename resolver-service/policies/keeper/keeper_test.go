package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var shared = serverstest.Kubernetes{Users: []string{"service", "nobody"}}

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// prepare gives the user service what the manifest says, and nothing else.
func prepare() error {
	const crds = "apply -f ../testdata/crds/"
	for _, args := range []string{"create namespace shop", "create namespace finance", "create namespace isthmus-system",
		crds + "dapr-configuration.yaml", crds + "istio-authorizationpolicy.yaml", crds + "linkerd-server.yaml", crds + "linkerd-meshtlsauthentication.yaml",
		crds + "linkerd-authorizationpolicy.yaml", "wait --for=condition=Established --all --timeout=60s crd",
		"apply -f ../../../deploy/kubernetes/rbac.yaml",
		"create clusterrolebinding network --clusterrole=isthmus-policies-network --user=service", "create clusterrolebinding istio --clusterrole=isthmus-policies-istio --user=service",
		"create clusterrolebinding linkerd --clusterrole=isthmus-policies-linkerd --user=service", "create clusterrolebinding dapr --clusterrole=isthmus-policies-dapr --user=service",
		"create rolebinding service -n isthmus-system --clusterrole=isthmus-policies-lease --user=service"} {
		if err := shared.Kubectl(strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// world is a topology whose policies are kept.
type world struct {
	t     *testing.T
	top   *topology.Topology
	sound atomic.Pointer[error]
	kinds []policies.Kind
}

func newWorld(t *testing.T, kinds ...policies.Kind) *world {
	t.Helper()
	shared.Need(t, prepare)
	for _, collection := range []string{
		"dapr.io/v1alpha1/namespaces/shop/configurations", "networking.k8s.io/v1/namespaces/shop/networkpolicies", "security.istio.io/v1/namespaces/shop/authorizationpolicies",
		"policy.linkerd.io/v1beta3/namespaces/shop/servers", "policy.linkerd.io/v1alpha1/namespaces/shop/meshtlsauthentications",
		"policy.linkerd.io/v1alpha1/namespaces/shop/authorizationpolicies", "coordination.k8s.io/v1/namespaces/isthmus-system/leases",
	} {
		if err := shared.Kubectl("delete", "--raw", "/apis/"+collection); err != nil { // each by itself takes kubectl a fifth of a second
			t.Fatal(err)
		}
	}
	w := &world{t: t, kinds: kinds, top: topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain}, slog.New(slog.DiscardHandler))}
	w.start(w.top.Run)
	return w
}

// start runs something until the test ends, or stop is called.
func (w *world) start(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) keeper(user, replica string) (k *Keeper, stop func()) {
	w.t.Helper()
	api, err := apiserver.New(apiserver.Config{Kubeconfig: shared.Kubeconfig(w.t, user)})
	if err != nil {
		w.t.Fatal(err)
	}
	settled := make(chan struct{})
	close(settled)
	c := Config{Kinds: w.kinds, Cluster: "west", Namespace: "isthmus-system", Identity: replica, Settled: settled, Sound: func() error {
		if err := w.sound.Load(); err != nil {
			return *err
		}
		return nil
	}}
	writer := policies.Writer{Domain: "west.example"}
	writer.Default("isthmus-system")
	c.Writer = func() policies.Writer { return writer }
	k = New(c, api, w.top, slog.New(slog.DiscardHandler))
	return k, w.start(k.Run)
}

func (w *world) tell(full bool, objects ...catalog.Object) {
	w.t.Helper()
	w.apply(topology.Change{Objects: &topology.ObjectChange{Full: full, Put: objects}})
}

func (w *world) apply(c topology.Change) {
	w.t.Helper()
	if _, err := w.top.Apply(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) runs(ids ...string) {
	w.t.Helper()
	c := topology.InstanceChange{Source: "kubernetes", Rank: topology.Scheduled}
	for i, id := range ids {
		c.Put = append(c.Put, catalog.Instance{ID: "p", App: app(id), Account: id, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 50002)})
	}
	w.apply(topology.Change{Instances: []topology.InstanceChange{c}})
}

func selects(caller string, callees ...string) *catalog.AppEndpoints {
	s := &catalog.AppEndpoints{App: app(caller)}
	for _, id := range callees {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: app(id)})
	}
	return s
}

func deletes(kind catalog.Kind, id string) topology.Change {
	return topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{{Kind: kind, Namespace: "shop", Name: id}}}}
}

// has is the spec of an object as JSON; empty where there is none.
func has(t *testing.T, plural, name string) string {
	t.Helper()
	out, err := shared.Run("", "get", plural, "-n", "shop", name, "--ignore-not-found", "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var o struct {
		Spec json.RawMessage `json:"spec"`
	}
	if out != "" && json.Unmarshal([]byte(out), &o) != nil {
		t.Fatalf("kubectl says %s", out)
	}
	return string(o.Spec)
}

// within waits for something that has to be true after a second, and says how long it took. Asking
// takes time itself.
func within(t *testing.T, what string, true func() bool) {
	t.Helper()
	began := time.Now()
	for !true() {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("not within 2 minutes: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%s: at most %s", what, time.Since(began).Round(time.Millisecond))
}

func TestPoliciesComeChangeAndGo(t *testing.T) {
	for kind, plurals := range map[policies.Kind][]string{
		policies.Network: {"networkpolicies"},
		policies.Dapr:    {"configurations.dapr.io"},
		policies.Istio:   {"authorizationpolicies.security.istio.io"},
		policies.Linkerd: {"meshtlsauthentications.policy.linkerd.io", "servers.policy.linkerd.io", "authorizationpolicies.policy.linkerd.io"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t, kind)
			w.tell(true)
			k, stop := w.keeper("service", "one")
			within(t, "the lease", func() bool { return k.Status().Leads })
			w.runs("orders", "checkout", "web")
			all := func(want ...string) func() bool {
				return func() bool {
					for _, plural := range plurals {
						if spec := has(t, plural, "isthmus-orders"); spec == "" || strings.HasPrefix(plural, plurals[0]) && slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(spec, `"`+s) && !strings.Contains(spec, s+`"`) }) {
							return false
						}
					}
					return true
				}
			}
			within(t, "a policy of an app that runs", all())
			w.tell(false, selects("checkout", "orders"))
			within(t, "a caller", all("checkout"))
			if spec := has(t, plurals[0], "isthmus-orders"); strings.Contains(spec, "web") {
				t.Errorf("somebody else is let in: %s", spec)
			}
			w.tell(false, selects("checkout"), selects("web", "orders"))
			within(t, "another caller", all("web"))
			if spec := has(t, plurals[0], "isthmus-orders"); strings.Contains(spec, "checkout") {
				t.Errorf("the former caller is let in: %s", spec)
			}
			if err := shared.Kubectl("patch", plurals[0], "-n", "shop", "isthmus-orders", "--type=merge", "-p", edits[kind]); err != nil {
				t.Fatal(err)
			}
			within(t, "a change by hand is healed", func() bool { return !strings.Contains(has(t, plurals[0], "isthmus-orders"), "edited") })
			if err := shared.Kubectl("delete", plurals[0], "-n", "shop", "isthmus-orders"); err != nil {
				t.Fatal(err)
			}
			within(t, "one that was deleted by hand is back", all("web"))
			w.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "kubernetes", Delete: []topology.InstanceKey{{App: app("orders"), ID: "p"}}}}})
			within(t, "an app that is gone", func() bool {
				return !slices.ContainsFunc(plurals, func(plural string) bool { return has(t, plural, "isthmus-orders") != "" })
			})
			stop()
			if has(t, plurals[0], "isthmus-web") == "" {
				t.Error("the policies went with the service")
			}
		})
	}
}

var edits = map[policies.Kind]string{
	policies.Network: `{"spec":{"podSelector":{"matchLabels":{"dapr.io/app-id":"edited"}}}}`,
	policies.Dapr:    `{"spec":{"accessControl":{"policies":[{"appId":"edited"}]}}}`,
	policies.Istio:   `{"spec":{"selector":{"matchLabels":{"dapr.io/app-id":"edited"}}}}`,
	policies.Linkerd: `{"spec":{"identityRefs":[{"kind":"ServiceAccount","name":"edited","namespace":"shop"}]}}`,
}

func TestAPolicyOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := newWorld(t, policies.Network)
	theirs := `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"isthmus-orders","namespace":"shop"},"spec":{"podSelector":{"matchLabels":{"a":"theirs"}}}}`
	if out, err := shared.Run(theirs, "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	w.tell(true)
	w.runs("orders", "web")
	k, _ := w.keeper("service", "one")
	within(t, "the other policy, and a word on this one", func() bool {
		left := k.Status().Left
		return has(t, "networkpolicies", "isthmus-web") != "" && len(left) == 1 && strings.HasPrefix(left[0], "NetworkPolicy shop/isthmus-orders was made by somebody else")
	})
	w.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "kubernetes", Delete: []topology.InstanceKey{{App: app("orders"), ID: "p"}}}}})
	within(t, "the word goes", func() bool { return len(k.Status().Left) == 0 })
	if spec := has(t, "networkpolicies", "isthmus-orders"); !strings.Contains(spec, "theirs") {
		t.Errorf("theirs became %q", spec)
	}
	// one that is handed over
	w.runs("orders")
	if err := shared.Kubectl("label", "networkpolicies", "-n", "shop", "isthmus-orders", policies.ManagedBy+"="+policies.Manager, clusterLabel+"=west"); err != nil {
		t.Fatal(err)
	}
	within(t, "one that was handed over is ours", func() bool { return strings.Contains(has(t, "networkpolicies", "isthmus-orders"), `"orders"`) })
}

func TestAnAppOfANamespaceThatIsNotHere(t *testing.T) {
	w := newWorld(t, policies.Network)
	s := selects("checkout", "orders")
	s.App.Namespace = "elsewhere"
	w.tell(true, s)
	w.runs("orders")
	k, _ := w.keeper("service", "one")
	within(t, "the policy of the other", func() bool {
		s := k.Status()
		return s.Pending == 0 && s.Objects == 1 && s.Err == nil && has(t, "networkpolicies", "isthmus-orders") != ""
	})
}

func TestAMeshThatIsNotInstalled(t *testing.T) {
	w := newWorld(t, policies.Istio)
	w.tell(true)
	if err := shared.Kubectl("delete", "-f", "../testdata/crds/istio-authorizationpolicy.yaml"); err != nil {
		t.Fatal(err)
	}
	k, _ := w.keeper("service", "one")
	within(t, "an error", func() bool {
		err := k.Status().Err
		return err != nil && strings.Contains(err.Error(), "does not know security.istio.io/v1: install it")
	})
	if err := shared.Kubectl("apply", "-f", "../testdata/crds/istio-authorizationpolicy.yaml"); err != nil {
		t.Fatal(err)
	}
	w.runs("orders")
	within(t, "a policy once it is", func() bool { return k.Status().Objects == 1 && k.Status().Err == nil })
}

func TestNothingGoesWhileSomethingIsMissing(t *testing.T) {
	w := newWorld(t, policies.Network)
	w.tell(true, selects("checkout", "orders"))
	w.runs("orders")
	k, stop := w.keeper("service", "one")
	within(t, "a policy", func() bool { return has(t, "networkpolicies", "isthmus-orders") != "" })
	stop()
	failure := errors.New("the store is away")
	w.sound.Store(&failure)
	w.apply(deletes(catalog.KindAppEndpoints, "checkout"))
	w.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "kubernetes", Full: true}}})
	k, _ = w.keeper("service", "two")
	within(t, "it says why it waits", func() bool { s := k.Status(); return s.Leads && errors.Is(s.Err, failure) })
	time.Sleep(1500 * time.Millisecond)
	if spec := has(t, "networkpolicies", "isthmus-orders"); !strings.Contains(spec, "checkout") {
		t.Errorf("while the store was away the policy became %q", spec)
	}
	w.sound.Store(nil)
	within(t, "it goes once all is known", func() bool { return has(t, "networkpolicies", "isthmus-orders") == "" && k.Status().Err == nil })
}

func TestOneReplicaWritesAndAnotherGoesOn(t *testing.T) {
	w := newWorld(t, policies.Network)
	w.tell(true)
	first, stop := w.keeper("service", "one")
	within(t, "the first leads", func() bool { return first.Status().Leads })
	second, _ := w.keeper("service", "two")
	within(t, "the second knows who leads", func() bool { return second.Status().Holder == "one" })
	w.runs("orders")
	within(t, "a policy", func() bool { return has(t, "networkpolicies", "isthmus-orders") != "" })
	if n := second.Status().Writes; n > 0 {
		t.Errorf("the second has written %d times", n)
	}
	stop()
	w.runs("orders", "web")
	within(t, "the second goes on", func() bool { return second.Status().Leads && has(t, "networkpolicies", "isthmus-web") != "" })
}

// TestAReplicaThatWasKilledIsWaitedFor has a Lease that nobody renews or releases any more.
func TestAReplicaThatWasKilledIsWaitedFor(t *testing.T) {
	w := newWorld(t, policies.Network)
	w.tell(true)
	w.runs("orders")
	killed := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"isthmus-policies-west","namespace":"isthmus-system"},`+
		`"spec":{"holderIdentity":"killed","leaseDurationSeconds":15,"renewTime":%q}}`, time.Now().UTC().Format(microTime))
	if out, err := shared.Run(killed, "create", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	began := time.Now()
	k, _ := w.keeper("service", "two")
	within(t, "the holder is known", func() bool { return k.Status().Holder == "killed" })
	for !k.Status().Leads {
		if time.Since(began) > time.Minute {
			t.Fatalf("%+v", k.Status())
		}
		time.Sleep(50 * time.Millisecond)
	}
	if took := time.Since(began); took < leaseTime {
		t.Errorf("the lease was taken after %s; it holds for %s", took, leaseTime)
	}
	within(t, "its policies are kept", func() bool { return has(t, "networkpolicies", "isthmus-orders") != "" })
}

func TestAMissingRoleIsNamed(t *testing.T) {
	w := newWorld(t, policies.Network)
	w.tell(true)
	k, _ := w.keeper("nobody", "one")
	within(t, "an error", func() bool {
		err := k.Status().Err
		return err != nil && strings.Contains(err.Error(), "give the account the role isthmus-policies-lease in deploy/kubernetes/rbac.yaml")
	})
}

// requests is what the API server counts of those for policies.
func requests(t *testing.T) string {
	t.Helper()
	page, err := shared.Run("", "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="networkpolicies"`) {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		t.Fatal("the API server counts no requests")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// TestOneChangeWritesWhatItReaches has 1,000 apps, each with 20 callees.
func TestOneChangeWritesWhatItReaches(t *testing.T) {
	const apps, callees = 1000, 20
	w := newWorld(t, policies.Network)
	var objects []catalog.Object
	var ids []string
	name := func(i int) string { return fmt.Sprint("app-", i%apps) }
	for i := range apps {
		ids = append(ids, name(i))
		var to []string
		for j := range callees {
			to = append(to, name(i+j+1))
		}
		objects = append(objects, selects(name(i), to...))
	}
	w.tell(true, objects...)
	w.runs(ids...)
	began := time.Now()
	k, _ := w.keeper("service", "one")
	quiet := func() bool { s := k.Status(); return s.Objects == apps && s.Pending == 0 && s.Writes >= apps }
	for !quiet() {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%+v", k.Status())
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%d policies after %s", apps, time.Since(began).Round(time.Millisecond))
	rest := requests(t)
	time.Sleep(2 * time.Second)
	if now := requests(t); now != rest {
		t.Errorf("requests at rest: the API server counts\n%s\nafter\n%s", now, rest)
	}
	before := k.Status().Writes
	w.tell(false, selects(name(0), name(500)))
	within(t, "one changed selection", func() bool {
		return k.Status().Writes >= before+callees+1 && strings.Contains(has(t, "networkpolicies", "isthmus-app-500"), `"app-0"`)
	})
	time.Sleep(time.Second)
	if n := k.Status().Writes - before; n != callees+1 {
		t.Errorf("%d writes for %d callees that went and one that came", n, callees)
	}
}

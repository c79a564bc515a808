package show

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func dryRun(a *v1alpha1.ApplyResponse) *v1alpha1.ApplyResponse {
	a.DryRun = true
	return a
}

func TestAnExplanationIsReadable(t *testing.T) {
	var b strings.Builder
	err := Explain(&b, "shop/checkout", "shop/orders", &v1alpha1.Decision{
		Outcome: "ok", Address: "10.0.0.1:50002", Cluster: "west", Rule: "AppEndpoints shop/checkout, spec.endpoints[0] (line 6)",
		Revision: 12, Reason: "west has 2 ready",
		Routes: []*v1alpha1.RouteDecision{
			{Cluster: "west", Weight: 1, Ready: 2, Taken: true, Reason: "2 ready"},
			{Cluster: "east", Priority: 1, Weight: 90, Reason: "no ready instance of shop/orders"},
		},
	})
	want := `shop/checkout asks for shop/orders: ok

  reason     west has 2 ready
  address    10.0.0.1:50002
  cluster    west
  rule       AppEndpoints shop/checkout, spec.endpoints[0] (line 6)
  revision   12

  ROUTE   PRIORITY   WEIGHT   READY           WHY
  west    0          1        2       taken   2 ready
  east    1          90       0               no ready instance of shop/orders
`
	if b.String() != want || err != nil {
		t.Errorf("got\n%s(%v)", b.String(), err)
	}
}

func TestARefusalIsReadableWithoutRoutes(t *testing.T) {
	var b strings.Builder
	if err := Explain(&b, "shop/checkout", "shop/secret", &v1alpha1.Decision{Outcome: "denied", Reason: "not held", Revision: 3}); err != nil {
		t.Fatal(err)
	}
	if want := "shop/checkout asks for shop/secret: denied\n\n  reason     not held\n  revision   3\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestADryRunShowsWhatWouldEndInAnotherWay(t *testing.T) {
	decision := func(outcome, cluster, reason string) *v1alpha1.Decision {
		return &v1alpha1.Decision{Outcome: outcome, Cluster: cluster, Reason: reason}
	}
	app := func(id string) *v1alpha1.App { return &v1alpha1.App{Namespace: "shop", Id: id} }
	shared := decision("ok", "west", "a")
	for cluster, share := range map[string]float64{"west": 79, "east": 20.4, "north": 0.6} {
		shared.Routes = append(shared.Routes, &v1alpha1.RouteDecision{Cluster: cluster, Share: share})
	}
	slices.SortFunc(shared.Routes, func(a, b *v1alpha1.RouteDecision) int { return cmp.Compare(b.Share, a.Share) })
	export := func(cluster, id, result string) *v1alpha1.ExportEffect {
		return &v1alpha1.ExportEffect{Cluster: cluster, App: app(id), Result: result, Removed: []string{"shop/web"}, Added: []string{"shop/*"}}
	}
	answer := &v1alpha1.ApplyResponse{
		Results: []*v1alpha1.ApplyResult{{Key: &v1alpha1.ObjectKey{Kind: "Cluster", Name: "east"}, Result: "changed"}},
		Effects: []*v1alpha1.Effect{
			{Caller: app("checkout"), App: app("orders"), Before: decision("ok", "west", "a"), After: decision("denied", "", "b")},
			{App: app("orders"), Before: shared, After: decision("ok", "west", "3 ready")},
			{App: app("cart"), Before: decision("stale", "", "a"), After: decision("stale", "", "b")},
		},
		EffectsLeftOut: 7, Counts: &v1alpha1.EffectCounts{Fail: 1, Elsewhere: 8, Back: 1},
		Exports: []*v1alpha1.ExportEffect{export("east", "cart", "withdrawn"), export("east", "orders", "withdrawn"), export("north", "cart", "exported"), export("north", "pay", "changed")},
	}
	var b strings.Builder
	if err := Apply(&b, dryRun(answer)); err != nil {
		t.Fatal(err)
	}
	want := `Cluster east changed (dry run)

callers in east would lose shop/cart, shop/orders
callers in north would get shop/cart
shop/pay: other callers in north would be allowed; no longer shop/web; now also shop/*
how lookups in these clusters end then is not tried here

1 lookup would fail, 8 would go elsewhere, 1 would succeed again

CALLER                      APP           NOW                                  THEN
shop/checkout               shop/orders   ok, west                             denied
(any without a selection)   shop/orders   ok, west 79 %, east 20 %, north <1 % ok, west
(any without a selection)   shop/cart     stale: a                             stale: b
and 7 more
`
	if strings.Join(strings.Fields(b.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	answer = &v1alpha1.ApplyResponse{Results: answer.GetResults()}
	if err := Apply(&b, dryRun(answer)); err != nil || !strings.Contains(b.String(), "\nno lookup in this cluster would end in another way\n") {
		t.Errorf("got\n%s(%v)", b.String(), err)
	}
	b.Reset()
	answer.DryRun = false
	if err := Apply(&b, answer); err != nil || b.String() != "Cluster east changed\n" {
		t.Errorf("got\n%s(%v)", b.String(), err)
	}
}

func TestAStatusShowsWhatIsWrong(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	for _, c := range []struct {
		what  string
		store *v1alpha1.StoreStatus
		want  string
	}{
		{"well", &v1alpha1.StoreStatus{Name: "embedded", Ready: true, Version: "7-ab"}, "embedded, version 7-ab"},
		{"well, with a long version", &v1alpha1.StoreStatus{Name: "etcd", Ready: true, Version: strings.Repeat("ab-", 20)}, "etcd, version " + strings.Repeat("ab-", 10) + "ab…"},
		{"not read", &v1alpha1.StoreStatus{Name: "embedded"}, "embedded, not read yet"},
		{"never read", &v1alpha1.StoreStatus{Name: "consul", Error: "refused", FailingUnixMs: ago(3 * time.Second)}, "consul, away for 3s, since " + now.Add(-3*time.Second).Format(time.TimeOnly) + ": refused; nothing was read of it yet"},
		{"failing", &v1alpha1.StoreStatus{Name: "consul", Ready: true, Error: "refused", FailingUnixMs: ago(12 * time.Second)}, "consul, away for 12s, since " + now.Add(-12*time.Second).Format(time.TimeOnly) + ": refused; serving revision 41, 3 objects"},
	} {
		if got := StoreLine(&v1alpha1.StatusResponse{Store: c.store, Revision: 41, Objects: 3}, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	var b strings.Builder
	err := Status(&b, &v1alpha1.StatusResponse{
		Cluster: "west", StartedUnixMs: ago(3 * 24 * time.Hour), IdentityError: "sentry not reached", Store: &v1alpha1.StoreStatus{Name: "embedded"},
		Refused: []*v1alpha1.RefusedObject{{Error: "a.yaml:3:1: bad"}},
		Peers: []*v1alpha1.PeerStatus{
			{Cluster: "east", State: "stale", SinceUnixMs: ago(time.Minute), LastWordUnixMs: ago(70 * time.Second), Exports: 3, Error: "refused"},
			{Cluster: "north", State: "connecting", SinceUnixMs: ago(1500 * time.Millisecond)},
		},
	}, false, now)
	for _, want := range []string{
		"running     for 3 days\n", "identity    none: sentry not reached\n", "\n  object: refused: a.yaml:3:1: bad\n",
		"east    stale        1m0s   1m10s ago   out     3         0       -          -          0        -\n", "\n  peer east: stale: refused\n",
		"north   connecting   1.5s   never       -       0         0       -          -          0        -\n",
	} {
		if !strings.Contains(b.String(), want) || err != nil {
			t.Errorf("no %q in\n%s(%v)", want, b.String(), err)
		}
	}
}

func TestALongListIsCut(t *testing.T) {
	for want, items := range map[string][]string{
		"none":                  nil,
		"a, b":                  {"a", "b"},
		"a, b, c, d and 2 more": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := catalog.Brief(items); got != want {
			t.Errorf("%v: %q, want %q", items, got, want)
		}
	}
}

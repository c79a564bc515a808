package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/isthmus-mesh/isthmus/catalog"
)

func shopApp(id string) App { return App{Namespace: "shop", ID: id} }

func TestWhoIsLetIn(t *testing.T) {
	access := &Access{
		Declared:   (*AppSet)(nil).With([]App{shopApp("checkout")}, nil),
		Undeclared: (*AppSet)(nil).With([]App{shopApp("web")}, nil),
		Remote: NewRemoteCallers([]RemoteCaller{
			{Cluster: "east", Domain: "east.example", Namespace: "shop", App: "stock"},
			{Cluster: "north", Domain: "north.example", Namespace: "shop"},
			{Cluster: "south", App: "audit"},
			{Cluster: "north", Namespace: "both"},
		}),
	}
	tests := []struct {
		domain  string // of this cluster's apps
		caller  Principal
		in      bool
		cluster string
	}{
		{"west.example", Principal{"west.example", shopApp("checkout")}, true, LocalCluster},
		{"west.example", Principal{"west.example", shopApp("web")}, true, LocalCluster},
		{"west.example", Principal{"west.example", shopApp("other")}, false, LocalCluster},
		{"west.example", Principal{"west.example", App{Namespace: "finance", ID: "checkout"}}, false, LocalCluster},
		{"west.example", Principal{"east.example", shopApp("checkout")}, false, "east"},
		{"", Principal{"east.example", shopApp("checkout")}, true, LocalCluster},
		{"", Principal{"east.example", shopApp("stock")}, true, "east"},
		{"west.example", Principal{"east.example", shopApp("stock")}, true, "east"},
		{"west.example", Principal{"north.example", shopApp("stock")}, true, "north"},
		{"west.example", Principal{"west.example", shopApp("stock")}, false, LocalCluster},
		{"west.example", Principal{"north.example", App{Namespace: "finance", ID: "stock"}}, false, "north"},
		{"west.example", Principal{"anywhere", App{Namespace: "finance", ID: "audit"}}, true, "south"},
		{"west.example", Principal{"west.example", App{Namespace: "finance", ID: "audit"}}, true, "south"},
		{"west.example", Principal{"anywhere", App{Namespace: "both", ID: "audit"}}, true, ""},
		{"west.example", Principal{"anywhere", shopApp("nobody")}, false, ""},
		{"west.example", Principal{}, false, ""},
	}
	for _, test := range tests {
		cluster, in := access.Judge(test.domain == "" || test.domain == test.caller.Domain, test.caller)
		if in != test.in || cluster != test.cluster {
			t.Errorf("%v, where apps are of %q: let in %t as one of %q, want %t, %q", test.caller, test.domain, in, cluster, test.in, test.cluster)
		}
	}
	if _, in := (&Access{}).Judge(true, Principal{"west.example", shopApp("checkout")}); in {
		t.Error("nobody is declared, and somebody is let in")
	}
	if n := testing.AllocsPerRun(100, func() { access.Judge(false, Principal{"anywhere", shopApp("nobody")}) }); n != 0 {
		t.Errorf("a caller costs %v allocations", n)
	}
}

func TestACallersHomeIsCertainOrUntold(t *testing.T) {
	east := RemoteCaller{Cluster: "east", Domain: "east.example", App: "stock"}
	north := RemoteCaller{Cluster: "north", Domain: "north.example"}
	for _, test := range []struct {
		what   string
		remote []RemoteCaller
		own    bool
		domain string
		home   string
	}{
		{"nobody else is known", nil, true, "west.example", LocalCluster},
		{"nobody else is known, and it is not our own", nil, false, "east.example", ""},
		{"our own", []RemoteCaller{east, north}, true, "west.example", LocalCluster},
		{"another cluster's, also where nothing lets it in", []RemoteCaller{east, north}, false, "east.example", "east"},
		{"nobody's", []RemoteCaller{east, north}, false, "anywhere", ""},
		{"of two of one cluster's entries", []RemoteCaller{east, {Cluster: "east", Domain: "east.example"}}, false, "east.example", "east"},
		{"shared with us", []RemoteCaller{east, {Cluster: "north", Domain: "west.example"}}, true, "west.example", ""},
		{"shared by two others", []RemoteCaller{east, {Cluster: "north", Domain: "east.example"}}, false, "east.example", ""},
		{"shared by two others, and not this one", []RemoteCaller{east, {Cluster: "north", Domain: "east.example"}}, true, "west.example", LocalCluster},
		{"of a cluster that names none", []RemoteCaller{east, {Cluster: "south"}}, false, "east.example", ""},
		{"our own, or that of a cluster that names none", []RemoteCaller{{Cluster: "south"}}, true, "west.example", ""},
	} {
		access := &Access{Remote: NewRemoteCallers(test.remote)}
		if home := access.Home(test.own, test.domain); home != test.home {
			t.Errorf("%s: %q, want %q", test.what, home, test.home)
		}
	}
}

// TestSetsOfAppsAreMaps holds sets to a map, through random changes.
func TestSetsOfAppsAreMaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var set *AppSet
	want := map[App]bool{}
	pick := func() (apps []App) {
		for range r.IntN(4) {
			apps = append(apps, shopApp(fmt.Sprint(r.IntN(60))))
		}
		return apps
	}
	digests := map[string]string{}
	for step := range 2000 {
		old, put, removed := set, pick(), pick()
		removed = slices.DeleteFunc(removed, func(a App) bool { return slices.Contains(put, a) })
		set = set.With(put, removed)
		changed := false
		for _, a := range removed {
			changed = changed || want[a]
			delete(want, a)
		}
		for _, a := range put {
			changed = changed || !want[a]
			want[a] = true
		}
		if set.Len() != len(want) || changed != (set != old) || changed == set.Same(old) {
			t.Fatalf("step %d: %d apps, want %d; changed %t, another set %t", step, set.Len(), len(want), changed, set != old)
		}
		for a := range set.All() {
			if !want[a] || !set.Has(a) {
				t.Fatalf("step %d: has %s", step, a)
			}
		}
		if again := old.With(set.Diff(old)); !again.Same(set) {
			t.Fatalf("step %d: the difference does not lead to the set", step)
		}
		names := fmt.Sprint(slices.SortedFunc(set.All(), App.Compare))
		if digest, known := digests[names]; known && digest != string(set.Digest()) {
			t.Fatalf("step %d: two digests of %s", step, names)
		}
		digests[names] = string(set.Digest())
	}
	seen := map[string]bool{}
	for _, d := range digests {
		if seen[d] {
			t.Fatal("two sets have one digest")
		}
		seen[d] = true
	}
}

func TestModesOfGuards(t *testing.T) {
	for text, want := range map[string]GuardMode{"": GuardObserve, "observe": GuardObserve, "off": GuardOff, "enforce": GuardEnforce} {
		if got, err := ParseGuardMode(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseGuardMode("on"); err == nil {
		t.Error("on is taken for a mode")
	}
}

func BenchmarkAdmits(b *testing.B) {
	var apps []App
	var remote []RemoteCaller
	for i := range 10_000 {
		apps = append(apps, shopApp(fmt.Sprint("app-", i)))
		remote = append(remote, RemoteCaller{Cluster: "east", Domain: "east.example", Namespace: "shop", App: fmt.Sprint("app-", i)})
	}
	access := &Access{Declared: (*AppSet)(nil).With(apps, nil), Remote: NewRemoteCallers(remote)}
	for _, caller := range []Principal{{"west.example", apps[17]}, {"east.example", apps[17]}} {
		b.Run(caller.Domain, func(b *testing.B) {
			for b.Loop() {
				if _, in := access.Judge(caller.Domain == "west.example", caller); !in {
					b.Fatal("refused")
				}
			}
		})
	}
}

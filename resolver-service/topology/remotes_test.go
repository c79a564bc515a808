package topology

import (
	"math/rand/v2"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Many entries allow whom few like them do.
func TestManyEntriesAllowWhomTheyName(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	oneOf := func(of ...string) string { return of[random.IntN(len(of))] }
	told := map[bool]int{}
	for range 300 {
		export := &PeerExport{}
		for range random.IntN(3 * fewEntries) {
			export.Allow = append(export.Allow, catalog.Allow{
				Cluster: oneOf("west", "west", "north", "*", ""), Namespace: oneOf("a", "b", "c", "d", "e", "f", "*"), App: oneOf("a", "b", "c", "d", "e", "f", "g", "h"),
			})
		}
		if random.IntN(10) == 0 {
			export.Allow = append(export.Allow, catalog.Allow{Cluster: "west", Namespace: oneOf("a", "", "*"), App: oneOf("a", "", "*")})
		}
		i := &imported{PeerExport: export, cluster: "east"}
		for range 30 {
			caller := catalog.App{Namespace: oneOf("a", "b", "c", "z"), ID: oneOf("a", "b", "c", "z")}
			want := catalog.Allowed(export.Allow, "west", caller)
			if len(export.Allow) > fewEntries {
				told[want]++
			}
			if got := i.allows("west", caller); got != want {
				t.Fatalf("%v allow %s: %t, want %t", export.Allow, caller, got, want)
			}
		}
	}
	if told[true] == 0 || told[false] == 0 {
		t.Errorf("of many entries: %v", told)
	}
}

func TestWhomAnExportAllowsFollowsItsEntries(t *testing.T) {
	entries := func(last string) (all []catalog.Allow) {
		for range fewEntries {
			all = append(all, catalog.Allow{Cluster: "west", Namespace: "shop", App: "other"})
		}
		return append(all, catalog.Allow{Cluster: "west", Namespace: "shop", App: last})
	}
	caller := catalog.App{Namespace: "shop", ID: "checkout"}
	var r remotes
	for _, step := range []struct {
		last string
		want bool
	}{{"checkout", true}, {"checkout", true}, {"billing", false}, {"billing", false}, {"*", true}} {
		r.put("east", &PeerExport{Allow: entries(step.last)})
		if got := r.of("east").allows("west", caller); got != step.want {
			t.Errorf("with an entry for %q it is allowed: %t", step.last, got)
		}
	}
}

package catalog

import (
	"strings"
	"testing"
)

func TestVersionsMatch(t *testing.T) {
	for _, c := range []struct {
		patterns Versions
		yes, no  string
	}{
		{"", "1.0,2.0", ""},
		{"2.*", "2.,2.0,2.1.5-rc.1", "2,12.0,1.2.0"},
		{"2.?,3", "2.1,3", "2.10,3.0,2."},
		{"*", "1,a-b_c+d", ""},
		{"*-rc.*", "2.0-rc.1", "2.0"},
	} {
		for _, v := range strings.Split(c.yes, ",") {
			if !c.patterns.Match(v) {
				t.Errorf("%q does not match %q", c.patterns, v)
			}
		}
		for _, v := range strings.Split(c.no, ",") {
			if v != "" && c.patterns.Match(v) {
				t.Errorf("%q matches %q", c.patterns, v)
			}
		}
		if c.patterns.Match("") != (c.patterns == "") {
			t.Errorf("%q and an instance without a version", c.patterns)
		}
		if back, err := ParseVersions(string(c.patterns)); err != nil || back != c.patterns {
			t.Errorf("%q came back as %q, %v", c.patterns, back, err)
		}
	}
	for _, odd := range []string{"[", "2,", ",", "2.*,[a-z]", `\`, strings.Repeat("2,", MaxVersions) + "2", strings.Repeat("2", MaxVersion+1)} {
		if v, err := ParseVersions(odd); err == nil {
			t.Errorf("%q was taken as %q", odd, v)
		}
	}
}

// Two instances never share a token, nor one by its version and another by itself.
func TestTokensOfVersionsAreTheirOwn(t *testing.T) {
	tokens := []uint32{7, 8}
	labels := NewLabels([]string{"2.1", ""})
	all := VersionTokens(tokens, labels)
	if len(all) != 2 || all[0] == 7 || all[1] != 8 || all[0] == VersionToken(7, "2.2") {
		t.Errorf("tokens %x", all)
	}
	clash := []uint32{7, VersionToken(7, "2.1")}
	if all := VersionTokens(clash, labels); all != nil {
		t.Errorf("%x by their versions are %x, so one has the name of the other", clash, all)
	}
	if all := VersionTokens(tokens, nil); &all[0] != &tokens[0] {
		t.Error("without versions they take room")
	}
}

// unversioned is a cluster where no version is known, as without a service.
type unversioned struct{ local Route }

func (u unversioned) Local() Route { return u.local }
func (u unversioned) Remote(string) Route {
	return RemoteRoute(2, 0, nil, []string{"orders.shop.east.isthmus.internal:15443"})
}
func (u unversioned) Exporters() []string { return nil }

// Where no version is known, a route to some leads nowhere, and others take its calls.
func TestVersionsThatNobodyKnows(t *testing.T) {
	app := App{"shop", "orders"}
	for what, local := range map[string]Route{
		"left to Dapr": {State: Delegated}, "ready": LocalRoute([]string{"10.0.0.1:1"}, 3), "none ready": LocalRoute(nil, 3),
	} {
		e := Endpoint{App: app, Routes: []RouteSpec{
			{Cluster: LocalCluster, Weight: 1, Versions: "*"}, {Cluster: "east", Weight: 1, Versions: "2.*"}, {Cluster: "north", Priority: 1, Weight: 1},
		}}
		p := e.Plan("west", unversioned{local})
		for _, r := range p.Routes[:2] {
			if r.State != Empty || r.Usable() || r.Ready != 0 || len(r.Addresses)+len(r.Instances) > 0 || !strings.Contains(r.Why(app), "none says its version") {
				t.Errorf("%s: %+v: %s", what, r, r.Why(app))
			}
		}
		if _, r := p.Pick(); r == nil || r.Cluster != "north" {
			t.Errorf("%s: calls go to %+v", what, r)
		}
	}
}

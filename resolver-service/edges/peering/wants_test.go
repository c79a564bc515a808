package peering

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// TestAPeerIsToldWhatCallersMissOfIt has west miss an app, then another one, then nothing.
func TestAPeerIsToldWhatCallersMissOfIt(t *testing.T) {
	east, west := eastAndWest(t, withTLS(t))
	links, _ := west.link(reaches("east", enough, east.server.address))
	within(t, "the link", func() bool { return only(links) != nil && only(links).State == connected })
	for _, missed := range [][]string{{"secret"}, {"secret", "vault"}, {}} {
		var apps []*v1alpha1.WantedApp
		var want []callhealth.WantedApp
		for _, id := range missed {
			apps = append(apps, &v1alpha1.WantedApp{App: wire.App(app(id)), Caller: wire.App(app("checkout"))})
			want = append(want, callhealth.WantedApp{App: app(id), Caller: app("checkout")})
		}
		links.SetWanted(func(cluster string) []*v1alpha1.WantedApp {
			if cluster == "east" {
				return apps
			}
			return nil
		})
		within(t, fmt.Sprintf("that east hears of %q", missed), func() bool { return slices.Equal(east.server.peering.Wanted()["west"], want) })
	}
}

// TestWhatAPeerWantsIsBounded has one name thousands of apps, and some that can be none.
func TestWhatAPeerWantsIsBounded(t *testing.T) {
	m := &v1alpha1.ExportsRequest{Wanted: &v1alpha1.Wanted{}}
	for i := range 5000 {
		m.Wanted.Apps = append(m.Wanted.Apps, &v1alpha1.WantedApp{App: wire.App(app(fmt.Sprint("made-up-", i))), Caller: wire.App(app("checkout"))})
	}
	m.Wanted.Apps[0].App = nil
	m.Wanted.Apps[1].Caller = &v1alpha1.App{Namespace: "a/b", Id: "\x1b[2J"}
	w := &wants{}
	w.take(m)
	w.take(&v1alpha1.ExportsRequest{Ping: 2}) // which says nothing of it
	if n := len(*w.apps.Load()); n != mostWanted-2 {
		t.Errorf("%d apps are kept", n)
	}
	var s Server
	s.wants.Store(w, "west")
	if got := s.Wanted()["west"]; len(got) != mostWanted-2 || got[0].Caller != (catalog.App{Namespace: "shop", ID: "checkout"}) {
		t.Errorf("%d apps are told, first %v", len(got), got[:1])
	}
}

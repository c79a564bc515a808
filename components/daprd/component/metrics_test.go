package component

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// series returns the values of all series, by name and label values.
func (s *sidecar) series() map[string]string {
	all := map[string]string{}
	for _, m := range s.component.Read() {
		for _, series := range m.TimeSeries {
			values := []string{m.Descriptor.Name}
			for _, v := range series.LabelValues {
				values = append(values, v.Value)
			}
			all[strings.Join(values, " ")] = fmt.Sprint(series.Points[0].Value)
		}
	}
	return all
}

func (s *sidecar) wantSeries(t *testing.T, name, want string) {
	t.Helper()
	if got := s.series(); got[name] != want {
		t.Errorf("%q is %q, want %q; all: %v", name, got[name], want, got)
	}
}

func TestRefusedLookupsAreCounted(t *testing.T) {
	service := servicetest.Start(t)
	c, o := sidecarOf(t, service, checkout, 50001), sidecarOf(t, service, orders, 50002)
	c.waitForAddress(t, orders, 50002)
	for i := range 3 { // whatever names an app asks for, they are one series
		_, err := c.find(catalog.App{Namespace: "shop", ID: fmt.Sprint("typo", i)})
		if err == nil {
			t.Fatal("an app that does not exist is found")
		}
	}
	before := c.series()
	c.wantSeries(t, "isthmus_lookups_refused_total   not found", "3")
	c.wantSeries(t, "isthmus_view_age_seconds", "0")
	if before["isthmus_view_revision"] == "0" {
		t.Errorf("the view has no revision: %v", before)
	}
	if err := o.component.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitForAddress(t, orders, 0)
	if _, err := c.find(orders); err == nil {
		t.Error("an app without a ready instance is found")
	}
	var named []string
	for name := range c.series() {
		if strings.HasPrefix(name, "isthmus_lookups_refused_total shop") {
			named = append(named, name)
		}
	}
	if want := []string{"isthmus_lookups_refused_total shop orders unavailable"}; !slices.Equal(named, want) {
		t.Errorf("%q, want %q", named, want)
	}
}

func TestAnAppThatLeftTheViewLosesItsName(t *testing.T) {
	view := &catalog.View{Entries: catalog.Table[*catalog.Entry]{}.With(catalog.Edit[*catalog.Entry]{App: orders, Value: &catalog.Entry{}})}
	var r refusals
	r.add(&catalog.Refusal{Outcome: catalog.Stale}, orders, view)
	r.add(&catalog.Refusal{Outcome: catalog.Stale}, checkout, view)
	if got := r.read(view)[refusedApp{orders, "stale"}]; got != 1 {
		t.Errorf("%d refused lookups of an app in the view, want 1", got)
	}
	if got := r.read(&catalog.View{}); len(got) != 1 || got[refusedApp{outcome: "stale"}] != 2 {
		t.Errorf("%v, want 2 without a name", got)
	}
}

func TestASidecarWithoutIsthmusHasNoMetrics(t *testing.T) {
	if all := newSidecar(t).series(); len(all) != 0 {
		t.Error(all)
	}
}

func TestLookupsAfterAFailedStartAreCounted(t *testing.T) {
	s := newSidecar(t)
	if err := s.start(t, orders, 50002, map[any]any{}); err == nil {
		t.Fatal("an empty configuration is taken")
	}
	if _, err := s.find(checkout); err == nil {
		t.Fatal("a lookup succeeds")
	}
	s.wantSeries(t, "isthmus_lookups_refused_total   not started", "1")
}

func TestBeforeAnyViewTheAgeGrows(t *testing.T) {
	s := newSidecar(t)
	nobody := withService("127.0.0.1:1")
	nobody["resolveTimeout"] = "10ms"
	if err := s.start(t, checkout, 50001, nobody); err != nil {
		t.Fatal(err)
	}
	if _, err := s.find(orders); err == nil {
		t.Fatal("a lookup without a view succeeds")
	}
	s.wantSeries(t, "isthmus_lookups_refused_total   not ready", "1")
	s.wantSeries(t, "isthmus_view_revision", "0")
	if age := s.series()["isthmus_view_age_seconds"]; age == "0" {
		t.Error("the age of no view is 0")
	}
}

// daprd makes a new resolver at a reload. Where the new one goes first, the old one still counts.
func TestMetricsAreOfTheNewestResolverThatIsLeft(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler), nil)
	old, next := &resolver{isthmus: new(nameresolution.Resolver)}, &resolver{isthmus: new(nameresolution.Resolver)}
	c.add(old)
	c.add(next)
	if c.newest() != next.isthmus {
		t.Error("the newest of two is not used")
	}
	c.remove(next)
	if c.newest() != old.isthmus {
		t.Error("the one that is left is not used")
	}
	if c.remove(old); c.newest() != nil {
		t.Error("one is used when none is left")
	}
}

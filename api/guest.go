package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Bounds of a guest.
const (
	MaxGuestApps = 100
	MaxTakes     = 100
)

// guest reads what a cluster may do that joins for a while.
func (v clusterValidator) guest(spec *v1alpha1.ClusterSpec) *catalog.Guest {
	m := spec.GetGuest()
	if m == nil {
		return nil
	}
	if spec.GetTunnel() != catalog.TunnelAccept {
		v.refuse("spec.guest", "is for a cluster that dials this one, and spec.tunnel is not accept", "write tunnel: accept beside it")
	}
	if spec.GetNetwork() != "" {
		v.refuse("spec.network", "is not for a guest, whose instances are reached through its tunnel alone", "leave network out, or guest")
	}
	g := &catalog.Guest{Until: v.until(m.Until)}
	if len(m.Apps) == 0 {
		v.refuse("spec.guest.apps", "are missing, and a guest without an app could do nothing", "write the apps that it may run, such as [shop/orders]")
	}
	if v.atMost("spec.guest.apps", len(m.Apps), MaxGuestApps, "leave some out") {
		for i, text := range m.Apps {
			g.Apps = append(g.Apps, v.fullName(fmt.Sprintf("spec.guest.apps[%d]", i), text))
			if j := slices.Index(m.Apps, text); j < i && text != "" {
				v.refuse(fmt.Sprintf("spec.guest.apps[%d]", i), fmt.Sprintf("%s is there twice, first as spec.guest.apps[%d]", text, j), "keep one of them")
			}
		}
	}
	if v.atMost("spec.guest.takes", len(m.Takes), MaxTakes, "leave some out") {
		for i, t := range m.Takes {
			g.Takes = append(g.Takes, v.take(fmt.Sprintf("spec.guest.takes[%d]", i), t, g.Apps))
		}
	}
	return g
}

func (v clusterValidator) until(text string) time.Time {
	const path = "spec.guest.until"
	if !v.required(text, path, "write when the guest leaves, such as \"2026-11-28T20:00:00Z\"") {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		v.refuse(path, fmt.Sprintf("%q is no time by RFC 3339", strict.Shorten(text)), "write one such as \"2026-11-28T20:00:00Z\"")
	}
	return at.UTC()
}

func (v clusterValidator) take(path string, m *v1alpha1.Take, apps []catalog.App) catalog.Take {
	t := catalog.Take{}
	if v.required(m.App, path+".app", "write one of spec.guest.apps") {
		if t.App = v.fullName(path+".app", m.App); !slices.Contains(apps, t.App) {
			v.refuse(path+".app", fmt.Sprintf("%q is none of spec.guest.apps", strict.Shorten(m.App)), "write it there too, or another here")
		}
	}
	switch {
	case m.Caller == "" && m.Header == nil && !v.there(path+".caller"):
		v.refuse(path, "says neither a caller nor a header, and would take every call", "write one of them")
	case m.Caller != "" && m.Header != nil:
		v.refuse(path, "says a caller and a header", "keep one of them")
	case m.Header != nil:
		t.Header = catalog.HeaderValue{Name: intern(strings.ToLower(m.Header.Name)), Value: intern(m.Header.Value)}
		if v.required(m.Header.Name, path+".header.name", "write the name of a header, such as x-dev") && v.required(m.Header.Value, path+".header.value", "write the value that calls have") {
			v.check(t.Header.Check(), path+".header", "write one such as {name: x-dev, value: anna}")
		}
	case m.Caller != "":
		if t.Caller = v.fullName(path+".caller", m.Caller); t.Caller == t.App {
			v.refuse(path+".caller", fmt.Sprintf("is %s itself, which always resolves to its own instance", m.App), "write another app")
		}
	}
	return t
}

// fullName reads "namespace/app-id".
func (v clusterValidator) fullName(path, text string) catalog.App {
	if text == "" { // that was reported
		return catalog.App{}
	}
	namespace, id, _ := strings.Cut(text, "/")
	app := catalog.App{Namespace: intern(namespace), ID: intern(id)}
	if app.CheckHost() != nil {
		v.refuse(path, fmt.Sprintf("%q is no namespace/app-id", strict.Shorten(text)), "write one such as shop/orders")
	}
	return app
}

// guestToProto is the message of a guest; nil for an ordinary cluster.
func guestToProto(g *catalog.Guest) *v1alpha1.Guest {
	if g == nil {
		return nil
	}
	m := &v1alpha1.Guest{Until: g.Until.Format(time.RFC3339Nano)}
	for _, app := range g.Apps {
		m.Apps = append(m.Apps, app.String())
	}
	for _, t := range g.Takes {
		take := &v1alpha1.Take{App: t.App.String()}
		if t.Caller != (catalog.App{}) {
			take.Caller = t.Caller.String()
		}
		if t.Header != (catalog.HeaderValue{}) {
			take.Header = &v1alpha1.HeaderValue{Name: t.Header.Name, Value: t.Header.Value}
		}
		m.Takes = append(m.Takes, take)
	}
	return m
}

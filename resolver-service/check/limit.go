package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http2"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
)

// Limit leaves only those facts that are about Peer or App, where these are set, and about the
// service itself.
func (f *Facts) Limit() {
	if f.Peer == "" && f.App == (catalog.App{}) {
		return
	}
	app := f.App.Namespace + "/" + f.App.ID
	ofApp := func(a *v1alpha1.App) bool { return f.App == (catalog.App{}) || appName(a) == app }
	f.Exported = slices.DeleteFunc(f.Exported, func(a *v1alpha1.AppState) bool {
		return !ofApp(a.GetApp()) || f.Peer != "" && !exportedTo(a, f.Peer)
	})
	exports := map[string][]string{}
	for _, a := range f.Exported {
		exports[appName(a.GetApp())] = a.GetExportedTo()
	}
	f.Sidecars = slices.DeleteFunc(f.Sidecars, func(s Sidecar) bool {
		return !ofApp(s.GetApp()) || f.Peer != "" && !s.LeadsTo(f.Peer) && len(exports[appName(s.GetApp())]) == 0
	})
	f.Findings = slices.DeleteFunc(f.Findings, func(x *v1alpha1.Finding) bool {
		name := strings.TrimPrefix(x.GetKey().GetNamespace()+"/"+x.GetKey().GetName(), "/")
		return f.App != catalog.App{} && name != app || f.Peer != "" && name != f.Peer
	})
	f.Faults = slices.DeleteFunc(f.Faults, func(c *v1alpha1.CallFault) bool {
		return !ofApp(c.GetCaller()) && !ofApp(c.GetCallee()) || f.Peer != "" && c.GetCluster() != f.Peer && c.GetCallerCluster() != f.Peer
	})
	meets := func(cluster string) bool {
		if f.Peer != "" {
			return cluster == f.Peer
		}
		return slices.ContainsFunc(f.Exported, func(a *v1alpha1.AppState) bool { return exportedTo(a, cluster) }) ||
			slices.ContainsFunc(f.Sidecars, func(s Sidecar) bool { return s.LeadsTo(cluster) }) || slices.ContainsFunc(f.Callees, func(c Callee) bool { return c.leadsTo(cluster) })
	}
	f.Status.Peers = slices.DeleteFunc(f.Status.Peers, func(p *v1alpha1.PeerStatus) bool { return !meets(p.GetCluster()) })
	f.Status.Trust = slices.DeleteFunc(f.Status.Trust, func(t *v1alpha1.TrustStatus) bool { return t.GetCluster() != "" && !meets(t.GetCluster()) })
}

func exportedTo(a *v1alpha1.AppState, cluster string) bool {
	return slices.Contains(a.GetExportedTo(), cluster) || slices.Contains(a.GetExportedTo(), "*")
}

func (c *Callee) leadsTo(cluster string) bool {
	return slices.ContainsFunc(c.Decision.Routes, func(r catalog.RouteDecision) bool { return r.Cluster == cluster })
}

// peerApps finds apps of a peer that its gateways don't lead to, or whose sidecars refuse this cluster's
// certificates. It ends each connection after the handshake, before any call. The gateways are those
// that are well.
func (f *Facts) peerApps(ctx context.Context, gateways []string) (all []Result) {
	if f.Prober.Identity.Insecure() {
		return nil
	}
	found := make(chan *Result)
	apps := f.Imported[:min(len(f.Imported), most)]
	for _, a := range apps {
		for _, gateway := range gateways {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, f.Prober.Within)
				defer cancel()
				app := catalog.App{Namespace: a.GetApp().GetNamespace(), ID: a.GetApp().GetId()}
				r := f.Prober.app(ctx, f.Peer, gateway, app)
				if r != nil {
					r.Kind, r.Name, r.Found = ofApp, app.String(), "through "+gateway+": "+r.Found
				}
				found <- r
			}()
		}
	}
	for range len(apps) * len(gateways) {
		if r := <-found; r != nil {
			all = append(all, *r)
		}
	}
	return all
}

// app makes a handshake with an app's sidecar through a gateway, as another sidecar does.
func (p *Prober) app(ctx context.Context, cluster, address string, app catalog.App) *Result {
	p.places <- struct{}{}
	defer func() { <-p.places }()
	cfg := p.Identity.CheckTLS()
	cfg.ServerName, cfg.NextProtos = p.Domain.Host(app, cluster), []string{http2.NextProtoTLS}
	var g greeting
	p.handshake(ctx, address, cfg, &g)
	switch {
	case g.dial != nil:
		return nil // it was well a moment ago
	case g.silent():
		return fail("its sidecar does not answer a handshake", "see that daprd runs there with mTLS, and that the gateway reaches its pod")
	case g.alert("unrecognized name"):
		return fail("the gateway does not know the app: it is not exported any more, or no instance of it is ready", "run isthmus check --app "+app.String()+" there")
	case g.err != nil:
		return fail("the handshake fails: "+g.err.Error(), "see the log of the app's sidecar there")
	}
	if id, _ := p.Identity.CheckPeer(cluster, g.state); id.App != app {
		return fail(fmt.Sprintf("it leads to %s", id), "see isthmus apps "+app.ID+" there: another process has the address of the instance")
	}
	if g.refused != nil {
		return fail(fmt.Sprintf("its sidecar refuses the certificate of this cluster: %v", g.refused), "add this cluster's root to the trust anchors of Dapr's sidecars there, and restart them")
	}
	return nil
}

// appInstances finds an app that runs nowhere, or not here.
func appInstances(f *Facts) []Result {
	name := f.App.String()
	one := func(level Level, found, fix string) []Result {
		return []Result{{Level: level, Kind: ofApp, Name: name, Found: found, Fix: fix}}
	}
	switch s := f.State; {
	case len(f.Sidecars) == 0 && s.GetReady() == 0 && s.GetDraining() == 0:
		return one(Fail, "no sidecar of it is connected to this replica, and no instance of it is known", "start it, and see that its Configuration names this resolver service; see isthmus sidecars "+f.App.ID)
	case s.GetReady() == 0 && s.GetDraining() > 0:
		return one(Warn, fmt.Sprintf("all %d instances of it are draining", s.GetDraining()), "see whether its app is healthy")
	}
	return nil
}

// appCallees finds apps that an app's selection names, and that it can't reach.
func appCallees(f *Facts) (all []Result) {
	said := func(app catalog.App) bool { // selection-exports says why
		return slices.ContainsFunc(f.Findings, func(x *v1alpha1.Finding) bool {
			return (x.GetCheck() == analysis.UnknownApp || x.GetCheck() == analysis.NotExported) && strings.Contains(x.GetWhat(), app.String())
		})
	}
	for _, c := range f.Callees {
		if c.Decision.Outcome == catalog.OK || c.App == f.App || said(c.App) {
			continue
		}
		all = append(all, Result{Level: Warn, Kind: ofApp, Name: c.App.String(), Found: c.Decision.Outcome.String() + ": " + c.Decision.Reason,
			Fix: "see isthmus explain --from " + f.App.String() + " " + c.App.ID + "." + c.App.Namespace})
	}
	return all
}

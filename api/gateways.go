package api

import (
	"fmt"
	"slices"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// gateways sorts a cluster's gateways into those for all apps and those for one.
func (v clusterValidator) gateways(gateways []*v1alpha1.Gateway, c *catalog.Cluster) {
	if !v.atMost("spec.gateways", len(gateways), MaxGateways, "use a DNS name with several addresses") {
		return
	}
	first := map[string]int{}
	ports := map[catalog.App]string{}
	for i, g := range gateways {
		app, forApp := v.gatewayApp(i, g)
		path := fmt.Sprintf("spec.gateways[%d].address", i)
		address, ok := v.gatewayAddress(path, g.Address, forApp)
		if !ok {
			continue
		}
		if j, there := first[address]; there {
			v.refuse(path, fmt.Sprintf("%s is there twice, first as spec.gateways[%d]", address, j), "keep one of them")
			continue
		}
		first[address] = i
		if !forApp {
			c.Gateways = append(c.Gateways, address)
			continue
		}
		own := catalog.AppGateway{App: app, Address: address}
		if port, there := ports[app]; there && port != own.Port() {
			v.refuse(path, fmt.Sprintf("has port %s, and another gateway for %s has %s; DNS tells addresses and no port", own.Port(), app, port), "give both one port, that of the sidecars that call")
			continue
		}
		ports[app] = own.Port()
		c.AppGateways = append(c.AppGateways, own)
	}
	if alone := !slices.ContainsFunc(gateways, func(g *v1alpha1.Gateway) bool { return g.App == "" }); alone && len(c.AppGateways) > 0 {
		v.refuse("spec.gateways", "are for single apps alone, and nothing would be heard from the cluster", "list a gateway for all apps too, through which its resolver service is reached")
	}
}

func (v clusterValidator) gatewayAddress(path, s string, forApp bool) (address string, ok bool) {
	if !v.required(s, path, "write \"host:port\"") {
		return "", false
	}
	check, fix := catalog.CheckGateway, "write an IP or a DNS name, with or without a port"
	if forApp {
		check, fix = catalog.CheckAppGateway, "write an IP or a DNS name, and the port, such as \"203.0.113.8:50002\""
	}
	address, err := check(s)
	return address, v.check(err, path, fix)
}

// gatewayApp is the one app that a gateway is for. A Cluster has no namespace that could
// stand for the app's.
func (v clusterValidator) gatewayApp(i int, g *v1alpha1.Gateway) (app catalog.App, forApp bool) {
	path := fmt.Sprintf("spec.gateways[%d].", i)
	hasApp, hasNamespace := g.App != "" || v.there(path+"app"), g.Namespace != "" || v.there(path+"namespace")
	switch {
	case !hasApp && !hasNamespace:
		return catalog.App{}, false
	case !hasApp:
		v.refuse(path+"app", "is missing", "write the app-id beside its namespace, or leave both out for a gateway for all apps")
	case !hasNamespace:
		v.refuse(path+"namespace", "is missing", "write the app's namespace; a Cluster has none that could stand for it")
	}
	if g.App != "" {
		v.check(catalog.CheckHostAppID(g.App), path+"app", "write the app-id as daprd has it")
	}
	if g.Namespace != "" {
		v.check(catalog.CheckNamespace(g.Namespace), path+"namespace", "write the app's namespace")
	}
	return catalog.App{Namespace: intern(g.Namespace), ID: intern(g.App)}, true
}

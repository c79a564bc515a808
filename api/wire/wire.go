// Package wire turns the values of catalog into the messages of the services, and back. It checks
// messages: none makes a value that catalog's rules can't handle.
package wire

import (
	"errors"
	"fmt"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// App is the message of an app.
func App(a catalog.App) *pb.App { return &pb.App{Namespace: a.Namespace, Id: a.ID} }

// Key is the message of a key.
func Key(k catalog.Key) *pb.ObjectKey {
	return &pb.ObjectKey{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}

// KeyOf is the key of a message, unchecked.
func KeyOf(m *pb.ObjectKey) catalog.Key {
	return catalog.Key{Kind: catalog.Kind(m.GetKind()), Namespace: m.GetNamespace(), Name: m.GetName()}
}

// AppOf is the app that a message names. Its names may be any text, or empty.
func AppOf(m *pb.App) catalog.App {
	return catalog.App{Namespace: m.GetNamespace(), ID: m.GetId()}
}

// Passes tells whether a filter lets an app pass: its empty fields stand for any.
func Passes(filter *pb.App, app catalog.App) bool {
	return (filter.GetNamespace() == "" || filter.GetNamespace() == app.Namespace) && (filter.GetId() == "" || filter.GetId() == app.ID)
}

// ParseApp reads an app and checks its names.
func ParseApp(m *pb.App) (catalog.App, error) {
	if m == nil {
		return catalog.App{}, errors.New("app is missing")
	}
	app := catalog.App{Namespace: m.Namespace, ID: m.Id}
	return app, app.Check()
}

// Gateways is the message of gateways, its clusters in no particular order.
func Gateways(g *catalog.Gateways) *pb.Gateways {
	if g == nil {
		return &pb.Gateways{}
	}
	m := &pb.Gateways{Domain: string(g.Domain), Clusters: make([]*pb.ClusterGateways, 0, len(g.Addresses))}
	for cluster, addresses := range g.Addresses {
		m.Clusters = append(m.Clusters, &pb.ClusterGateways{Cluster: cluster, Addresses: addresses})
	}
	return m
}

// ParseGateways reads gateways and checks the cluster names and addresses.
func ParseGateways(m *pb.Gateways) (*catalog.Gateways, error) {
	g := &catalog.Gateways{Domain: catalog.Domain(m.GetDomain()), Addresses: make(map[string][]string, len(m.GetClusters()))}
	if g.Domain != "" {
		if err := catalog.CheckDomain(m.GetDomain()); err != nil {
			return nil, err
		}
	}
	for _, c := range m.GetClusters() {
		if err := catalog.CheckCluster(c.GetCluster()); err != nil {
			return nil, err
		}
		addresses := make([]string, len(c.GetAddresses()))
		for i, a := range c.GetAddresses() {
			checked, err := catalog.CheckGateway(a)
			if err != nil {
				return nil, fmt.Errorf("cluster %s: %w", c.GetCluster(), err)
			}
			addresses[i] = checked
		}
		g.Addresses[c.GetCluster()] = addresses
	}
	return g, nil
}

// Decision is the message of a decision.
func Decision(d *catalog.Decision) *pb.Decision {
	m := &pb.Decision{
		Outcome: d.Outcome.String(), Address: d.Address, Cluster: d.Cluster, Gateway: d.Gateway,
		Rule: d.Rule, Revision: d.Revision, Reason: d.Reason, Routes: make([]*pb.RouteDecision, len(d.Routes)), Notes: d.Notes,
	}
	for i := range d.Routes {
		m.Routes[i] = routeDecision(&d.Routes[i])
	}
	return m
}

package wire

import (
	"fmt"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxRoutes bounds the routes of an entry that comes in: a selection's are bounded by
// catalog.MaxRoutes, those of an endpoint without routes by the number of clusters.
const maxRoutes = 10_000

// states pairs the two enumerations. They are apart so that neither can change the
// other by accident. What a sidecar does that does not know of damped is right without it.
var states = [...]struct {
	value   catalog.RouteState
	message pb.ViewRoute_State
	damped  bool
}{
	{catalog.Ready, pb.ViewRoute_STATE_READY, false},
	{catalog.Lapsed, pb.ViewRoute_STATE_LAPSED, false},
	{catalog.Empty, pb.ViewRoute_STATE_EMPTY, false},
	{catalog.NotExported, pb.ViewRoute_STATE_NOT_EXPORTED, false},
	{catalog.UnknownCluster, pb.ViewRoute_STATE_UNKNOWN_CLUSTER, false},
	{catalog.Unheard, pb.ViewRoute_STATE_UNHEARD, false},
	{catalog.LeaseExpired, pb.ViewRoute_STATE_LEASE_EXPIRED, false},
	{catalog.Delegated, pb.ViewRoute_STATE_DELEGATED, false},
	{catalog.Damped, pb.ViewRoute_STATE_LEASE_EXPIRED, true},
	{catalog.LastResort, pb.ViewRoute_STATE_READY, true},
}

// state is the message of a route's state.
func state(s catalog.RouteState) (_ pb.ViewRoute_State, damped bool) {
	for _, pair := range states {
		if pair.value == s {
			return pair.message, pair.damped
		}
	}
	return pb.ViewRoute_STATE_UNSPECIFIED, false
}

func parseState(m pb.ViewRoute_State, damped bool) (catalog.RouteState, bool) {
	for _, pair := range states {
		if pair.message == m && pair.damped == damped {
			return pair.value, true
		}
	}
	return 0, false
}

// Entry is the message of an entry, with its digest. It shares the addresses.
func Entry(e *catalog.Entry) *pb.ViewEntry {
	m := &pb.ViewEntry{App: App(e.App), Rule: e.Rule.String(), Routes: make([]*pb.ViewRoute, len(e.Routes))}
	routes := make([]pb.ViewRoute, len(e.Routes))
	for i := range e.Routes {
		r := &e.Routes[i]
		to := &routes[i]
		to.Cluster, to.Priority, to.Weight = r.Cluster, r.Priority, r.Weight
		to.State, to.Damped = state(r.State)
		to.Local, to.Gateway, to.Ready, to.Addresses = r.Local, r.Gateway, r.Ready, r.Addresses
		to.Draining, to.Ramp, to.Instances = r.Draining, uint32(r.Ramp), r.Instances
		to.Zones, to.ZoneOf = r.Zones.Parts()
		if shards := r.Shards(); shards > 0 {
			to.Shards, to.Addresses = uint32(shards), []string{r.GatewayAddress()}
		}
		m.Routes[i] = to
	}
	m.Digest = digest(e, m.Rule)
	return m
}

// ParseEntry reads an entry.
func ParseEntry(m *pb.ViewEntry) (*catalog.Entry, error) {
	app, err := ParseApp(m.GetApp())
	if err != nil {
		return nil, err
	}
	if len(m.GetRoutes()) > maxRoutes {
		return nil, fmt.Errorf("entry of %s has %d routes; at most %d are taken", app, len(m.GetRoutes()), maxRoutes)
	}
	routes := make([]catalog.Route, len(m.GetRoutes()))
	for i, r := range m.GetRoutes() {
		if routes[i], err = parseRoute(app, r); err != nil {
			return nil, fmt.Errorf("entry of %s, route %d: %w", app, i, err)
		}
	}
	return catalog.NewEntry(app, catalog.TextRule(m.GetRule()), routes), nil
}

func parseRoute(app catalog.App, m *pb.ViewRoute) (catalog.Route, error) {
	s, ok := parseState(m.GetState(), m.GetDamped())
	if !ok {
		return catalog.Route{}, fmt.Errorf("state %d is unknown to this version", m.GetState())
	}
	if err := checkRoute(m, s); err != nil {
		return catalog.Route{}, err
	}
	addresses := m.GetAddresses()
	if m.GetShards() > 1 {
		var err error
		if addresses, err = shards(app, m); err != nil {
			return catalog.Route{}, err
		}
	}
	instances := len(addresses)
	if m.GetGateway() {
		instances = len(m.GetInstances())
	}
	zones, err := catalog.ParseZones(m.GetZones(), m.GetZoneOf(), instances)
	if err != nil {
		return catalog.Route{}, err
	}
	return catalog.Route{
		Cluster: m.GetCluster(), Priority: m.GetPriority(), Weight: m.GetWeight(), State: s,
		Local: m.GetLocal(), Gateway: m.GetGateway(), Ready: m.GetReady(), Addresses: addresses,
		Draining: m.GetDraining(), Ramp: uint8(m.GetRamp()), Instances: m.GetInstances(), Zones: zones,
	}, nil
}

// checkRoute holds a route to the bounds of the rules.
func checkRoute(m *pb.ViewRoute, s catalog.RouteState) error {
	leads := s == catalog.Ready || s == catalog.Lapsed || s == catalog.Damped || s == catalog.LastResort
	switch n := len(m.GetAddresses()); {
	case m.GetWeight() > catalog.MaxWeight || m.GetPriority() > catalog.MaxPriority:
		return fmt.Errorf("weight %d and priority %d; at most %d and %d are allowed", m.GetWeight(), m.GetPriority(), catalog.MaxWeight, catalog.MaxPriority)
	case m.GetRamp() > 100:
		return fmt.Errorf("ramp of %d percent; at most 100 are there to take", m.GetRamp())
	case leads && n == 0:
		return fmt.Errorf("state %s without an address", m.GetState())
	case m.GetGateway() && n > 1:
		return fmt.Errorf("%d addresses of a gateway route, which has one", n)
	}
	if n := len(m.GetInstances()); n > catalog.MaxShards || n > 0 && !m.GetGateway() {
		return fmt.Errorf("%d instances by name; at most %d are taken, and of a gateway route only", n, catalog.MaxShards)
	}
	for _, address := range m.GetAddresses() {
		if address == "" {
			return fmt.Errorf("an empty address among %d", len(m.GetAddresses()))
		}
	}
	return nil
}

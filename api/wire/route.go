package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// The fields of a ViewRoute; see services.proto.
const (
	routeCluster   protowire.Number = 1
	routePriority  protowire.Number = 2
	routeWeight    protowire.Number = 3
	routeState     protowire.Number = 4
	routeLocal     protowire.Number = 5
	routeGateway   protowire.Number = 6
	routeReady     protowire.Number = 7
	routeAddresses protowire.Number = 8
	routeShards    protowire.Number = 9
	routeDraining  protowire.Number = 10
	routeRamp      protowire.Number = 11
	routeInstances protowire.Number = 12
	routeDamped    protowire.Number = 13
	routeZones     protowire.Number = 14
	routeZoneOf    protowire.Number = 15
	routeMinReady  protowire.Number = 16
	routeVersions  protowire.Number = 17
	routeAsked     protowire.Number = 18
)

// states pairs the two enumerations. They are apart so that neither can change the
// other by accident. What a sidecar does that knows neither of damped nor of asked is right without
// them.
var states = [...]struct {
	value         catalog.RouteState
	message       pb.ViewRoute_State
	damped, asked bool
}{
	{catalog.Ready, pb.ViewRoute_STATE_READY, false, false},
	{catalog.Lapsed, pb.ViewRoute_STATE_LAPSED, false, false},
	{catalog.Empty, pb.ViewRoute_STATE_EMPTY, false, false},
	{catalog.NotExported, pb.ViewRoute_STATE_NOT_EXPORTED, false, false},
	{catalog.UnknownCluster, pb.ViewRoute_STATE_UNKNOWN_CLUSTER, false, false},
	{catalog.Unheard, pb.ViewRoute_STATE_UNHEARD, false, false},
	{catalog.Asked, pb.ViewRoute_STATE_UNHEARD, false, true},
	{catalog.LeaseExpired, pb.ViewRoute_STATE_LEASE_EXPIRED, false, false},
	{catalog.Delegated, pb.ViewRoute_STATE_DELEGATED, false, false},
	{catalog.Damped, pb.ViewRoute_STATE_LEASE_EXPIRED, true, false},
	{catalog.LastResort, pb.ViewRoute_STATE_READY, true, false},
}

// state is the message of a route's state.
func state(s catalog.RouteState) (_ pb.ViewRoute_State, damped, asked bool) {
	if s == catalog.GuestOnly { // which is the same for a sidecar, also for one that knows no guests
		s = catalog.NotExported
	}
	for _, pair := range states {
		if pair.value == s {
			return pair.message, pair.damped, pair.asked
		}
	}
	return pb.ViewRoute_STATE_UNSPECIFIED, false, false
}

func parseState(m pb.ViewRoute_State, damped, asked bool) (catalog.RouteState, bool) {
	for _, pair := range states {
		if pair.message == m && pair.damped == damped && pair.asked == asked {
			return pair.value, true
		}
	}
	return 0, false
}

func appendRoute(m []byte, r *catalog.Route) []byte {
	state, damped, asked := state(r.State)
	m = appendText(m, routeCluster, r.Cluster)
	m = appendNumber(m, routePriority, uint64(r.Priority))
	m = appendNumber(m, routeWeight, uint64(r.Weight))
	m = appendNumber(m, routeState, uint64(state))
	m = appendNumber(m, routeLocal, uint64(bit(r.Local)))
	m = appendNumber(m, routeGateway, uint64(bit(r.Gateway)))
	m = appendNumber(m, routeReady, uint64(r.Ready))
	shards := r.Shards()
	if shards > 0 {
		m = appendText(m, routeAddresses, r.GatewayAddress())
	} else {
		for _, address := range r.Addresses {
			m = protowire.AppendString(protowire.AppendTag(m, routeAddresses, protowire.BytesType), address)
		}
	}
	m = appendNumber(m, routeShards, uint64(shards))
	m = appendNumber(m, routeDraining, uint64(r.Draining))
	m = appendNumber(m, routeRamp, uint64(r.Ramp))
	if len(r.Instances) > 0 {
		m = protowire.AppendVarint(protowire.AppendTag(m, routeInstances, protowire.BytesType), uint64(4*len(r.Instances)))
		for _, token := range r.Instances {
			m = protowire.AppendFixed32(m, token)
		}
	}
	m = appendNumber(m, routeDamped, uint64(bit(damped)))
	if r.Zones != nil {
		names, of := r.Zones.Parts()
		for _, name := range names {
			m = appendText(m, routeZones, name)
		}
		m = appendMessage(m, routeZoneOf, of)
	}
	m = appendText(appendText(m, routeMinReady, r.MinReady.String()), routeVersions, string(r.Versions))
	return appendNumber(m, routeAsked, uint64(bit(asked)))
}

func parseRoute(app catalog.App, m *pb.ViewRoute) (catalog.Route, error) {
	s, ok := parseState(m.GetState(), m.GetDamped(), m.GetAsked())
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
	zones, err := catalog.ParseLabels(m.GetZones(), m.GetZoneOf(), instances)
	if err != nil {
		return catalog.Route{}, err
	}
	minReady, err := catalog.ParseMinReady(m.GetMinReady())
	if err != nil {
		return catalog.Route{}, fmt.Errorf("min_ready %q %w", m.GetMinReady(), err)
	}
	versions, err := catalog.ParseVersions(m.GetVersions())
	if err != nil {
		return catalog.Route{}, err
	}
	return catalog.Route{
		RouteSpec: catalog.RouteSpec{Cluster: m.GetCluster(), Priority: m.GetPriority(), Weight: m.GetWeight(), MinReady: minReady, Versions: versions}, State: s,
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

// routeDecision is the message of one route of a decision.
func routeDecision(r *catalog.RouteDecision) *pb.RouteDecision {
	return &pb.RouteDecision{
		Cluster: r.Cluster, Priority: r.Priority, Weight: r.Weight, Ready: uint32(r.Ready), Taken: r.Taken || r.Share > 0, Reason: r.Reason,
		Shards: uint32(r.Shards), Draining: uint32(r.Draining), Ramp: uint32(r.Ramp), Peer: r.Peer, Unnamed: r.Unnamed, Zones: r.Zones, Share: r.Share, Fault: r.Fault, MinReady: r.MinReady.String(),
		Versions: string(r.Versions), Running: r.Running, Take: r.Take,
	}
}

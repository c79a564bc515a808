package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Decision is how one lookup ended, as programs read it: these fields and no others,
// all of them always there.
type Decision struct {
	Outcome  string   `json:"outcome" yaml:"outcome"`
	Address  string   `json:"address" yaml:"address"`
	Cluster  string   `json:"cluster" yaml:"cluster"`
	Gateway  string   `json:"gateway" yaml:"gateway"`
	Rule     string   `json:"rule" yaml:"rule"`
	Revision uint64   `json:"revision" yaml:"revision"`
	Reason   string   `json:"reason" yaml:"reason"`
	Routes   []Route  `json:"routes" yaml:"routes"`
	Notes    []string `json:"notes" yaml:"notes"`
	Probes   []Probe  `json:"probes,omitempty" yaml:"probes,omitempty"` // where they were asked for
}

// Probe is what became of a connection to an endpoint of a decision.
type Probe struct {
	Cluster    string  `json:"cluster" yaml:"cluster"`
	Address    string  `json:"address" yaml:"address"`
	ServerName string  `json:"serverName" yaml:"serverName"` // empty without TLS
	Result     string  `json:"result" yaml:"result"`         // connected, closed, silent, refused or wrong certificate
	Identity   string  `json:"identity" yaml:"identity"`     // of its certificate
	TookMs     float64 `json:"tookMs" yaml:"tookMs"`
	Why        string  `json:"why" yaml:"why"`
}

// AddProbes adds what became of connections.
func (d *Decision) AddProbes(m *v1alpha1.ProbeResponse) {
	d.Probes = []Probe{}
	for _, e := range m.GetEndpoints() {
		d.Probes = append(d.Probes, Probe{
			e.GetCluster(), e.GetAddress(), e.GetServerName(), e.GetResult(), e.GetIdentity(), float64(e.GetTookUs()) / 1000, e.GetWhy(),
		})
	}
	if n := m.GetLeftOut(); n > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%d more endpoints were not tried", n))
	}
}

// probes writes what became of connections.
func probes(w io.Writer, all []Probe) error {
	if all == nil {
		return nil
	}
	if len(all) == 0 {
		_, err := Say(w, "\n  probe: the decision leads to no endpoint\n")
		return err
	}
	Say(w, "\n")
	var table [][]string
	for _, p := range all {
		text := p.Identity + after(": ", p.Why)
		if p.Identity == "" {
			text = cmp.Or(p.Why, "no TLS: the service is insecure")
		}
		table = append(table, []string{"  " + p.Address, p.Cluster, p.Result, fmt.Sprintf("%.1f ms", p.TookMs), text})
	}
	return rows(w, []string{"  PROBED", "CLUSTER", "RESULT", "TOOK", "CERTIFICATE"}, table)
}

// Route is one way to an app, and why it was or was not taken.
type Route struct {
	Cluster  string  `json:"cluster" yaml:"cluster"`
	Priority uint32  `json:"priority" yaml:"priority"`
	Weight   uint32  `json:"weight" yaml:"weight"`
	Ready    uint32  `json:"ready" yaml:"ready"`
	Draining uint32  `json:"draining" yaml:"draining"`
	Shards   uint32  `json:"shards" yaml:"shards"`
	Ramp     uint32  `json:"ramp" yaml:"ramp"`
	Taken    bool    `json:"taken" yaml:"taken"` // lookups take it: all, or its share
	Reason   string  `json:"reason" yaml:"reason"`
	Peer     string  `json:"peer" yaml:"peer"`
	Unnamed  string  `json:"unnamed" yaml:"unnamed"`
	Zones    string  `json:"zones" yaml:"zones"`
	Share    float64 `json:"share" yaml:"share"` // of the lookups, in percent
	Fault    string  `json:"fault" yaml:"fault"` // why the caller's calls by it fail, as far as the service knows
}

// shared tells whether lookups take the route and others.
func (r *Route) shared() bool { return r.Share > 0 && r.Share < 100 }

// Failing tells whether calls go by a route on which they fail, as far as the service knows.
func (d *Decision) Failing() bool {
	return slices.ContainsFunc(d.Routes, func(r Route) bool { return r.Taken && r.Fault != "" })
}

// DecisionOf reads a decision from its message.
func DecisionOf(m *v1alpha1.Decision) Decision {
	d := Decision{
		Outcome: m.GetOutcome(), Address: m.GetAddress(), Cluster: m.GetCluster(), Gateway: m.GetGateway(),
		Rule: m.GetRule(), Revision: m.GetRevision(), Reason: m.GetReason(), Routes: []Route{}, Notes: append([]string{}, m.GetNotes()...),
	}
	for _, r := range m.GetRoutes() {
		d.Routes = append(d.Routes, Route{
			Cluster: r.GetCluster(), Priority: r.GetPriority(), Weight: r.GetWeight(),
			Ready: r.GetReady(), Draining: r.GetDraining(), Shards: r.GetShards(), Ramp: r.GetRamp(),
			Taken: r.GetTaken() || r.GetShare() > 0, Reason: r.GetReason(), Peer: r.GetPeer(), Unnamed: r.GetUnnamed(), Zones: r.GetZones(), Share: r.GetShare(), Fault: r.GetFault(),
		})
	}
	return d
}

// Explain writes a decision for people.
func Explain(w io.Writer, caller, app string, d Decision) error {
	outcome := d.Outcome
	if d.Failing() {
		outcome += ", but calls fail"
	}
	Say(w, "%s asks for %s: %s\n\n", caller, app, outcome)
	cluster := d.Cluster
	if slices.ContainsFunc(d.Routes, func(r Route) bool { return r.shared() }) {
		cluster += " this time"
	}
	err := pairs(w, "  ", [][2]string{
		{"reason", d.Reason},
		{"address", d.Address},
		{"cluster", cluster},
		{"gateway", d.Gateway},
		{"rule", d.Rule},
		{"revision", strconv.FormatUint(d.Revision, 10)},
	})
	if len(d.Notes) > 0 {
		Say(w, "\n")
	}
	for _, note := range d.Notes {
		paragraph(w, "  note: ", "    ", note)
	}
	if err != nil || len(d.Routes) == 0 {
		return cmp.Or(err, probes(w, d.Probes))
	}
	Say(w, "\n")
	if err := routes(w, d.Routes); err != nil {
		return err
	}
	between := "\n"
	for _, about := range []struct {
		format string
		value  func(*Route) string
	}{
		{"  fault %s: ", func(r *Route) string { return r.Fault }},
		{"  peer %s: ", func(r *Route) string { return r.Peer }},
		{"  callers without a server name to %s: ", func(r *Route) string { return r.Unnamed }},
	} {
		for i := range d.Routes {
			if text := about.value(&d.Routes[i]); text != "" {
				paragraph(w, between+fmt.Sprintf(about.format, d.Routes[i].Cluster), "    ", text)
				between = ""
			}
		}
	}
	return probes(w, d.Probes)
}

// routes writes a table of routes. Columns that say nothing are left out.
func routes(w io.Writer, all []Route) error {
	columns := []struct {
		name   string
		always bool
		value  func(*Route) string
	}{
		{"  ROUTE", true, func(r *Route) string { return "  " + r.Cluster }},
		{"PRIORITY", true, func(r *Route) string { return number(r.Priority) }},
		{"WEIGHT", true, func(r *Route) string { return number(r.Weight) }},
		{"READY", true, func(r *Route) string { return number(r.Ready) }},
		{"DRAINING", false, func(r *Route) string { return unlessZero(r.Draining, "") }},
		{"SHARDS", false, func(r *Route) string { return unlessZero(r.Shards, "") }},
		{"RAMP", false, func(r *Route) string { return unlessZero(r.Ramp, " %") }},
		{"SHARE", false, func(r *Route) string {
			if r.shared() {
				return percent(r.Share)
			}
			return ""
		}},
		{"ZONES", false, func(r *Route) string { return r.Zones }},
		{"", true, func(r *Route) string {
			if r.Taken {
				return "taken"
			}
			return ""
		}},
		{"WHY", true, func(r *Route) string { return r.Reason }},
	}
	var heading []string
	table := make([][]string, len(all))
	for _, c := range columns {
		if !c.always && !slices.ContainsFunc(all, func(r Route) bool { return c.value(&r) != "" }) {
			continue
		}
		heading = append(heading, c.name)
		for i := range all {
			table[i] = append(table[i], c.value(&all[i]))
		}
	}
	return rows(w, heading, table, "ZONES", "SHARDS", "WEIGHT")
}

func unlessZero(n uint32, unit string) string {
	if n == 0 {
		return ""
	}
	return number(n) + unit
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

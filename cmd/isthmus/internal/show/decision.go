package show

import (
	"fmt"
	"io"
	"strconv"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Decision is how one lookup ended, as programs read it: these fields and no others,
// all of them always there.
type Decision struct {
	Outcome  string  `json:"outcome" yaml:"outcome"`
	Address  string  `json:"address" yaml:"address"`
	Cluster  string  `json:"cluster" yaml:"cluster"`
	Gateway  string  `json:"gateway" yaml:"gateway"`
	Rule     string  `json:"rule" yaml:"rule"`
	Revision uint64  `json:"revision" yaml:"revision"`
	Reason   string  `json:"reason" yaml:"reason"`
	Routes   []Route `json:"routes" yaml:"routes"`
}

// Route is one way to an app, and why it was or was not taken.
type Route struct {
	Cluster  string `json:"cluster" yaml:"cluster"`
	Priority uint32 `json:"priority" yaml:"priority"`
	Weight   uint32 `json:"weight" yaml:"weight"`
	Ready    uint32 `json:"ready" yaml:"ready"`
	Taken    bool   `json:"taken" yaml:"taken"`
	Reason   string `json:"reason" yaml:"reason"`
}

// DecisionOf reads a decision from its message.
func DecisionOf(m *v1alpha1.Decision) Decision {
	d := Decision{
		Outcome: m.GetOutcome(), Address: m.GetAddress(), Cluster: m.GetCluster(), Gateway: m.GetGateway(),
		Rule: m.GetRule(), Revision: m.GetRevision(), Reason: m.GetReason(), Routes: []Route{},
	}
	for _, r := range m.GetRoutes() {
		d.Routes = append(d.Routes, Route{
			Cluster: r.GetCluster(), Priority: r.GetPriority(), Weight: r.GetWeight(),
			Ready: r.GetReady(), Taken: r.GetTaken(), Reason: r.GetReason(),
		})
	}
	return d
}

// Explain writes a decision for people.
func Explain(w io.Writer, caller, app string, d Decision) error {
	fmt.Fprintf(w, "%s asks for %s: %s\n\n", caller, app, d.Outcome)
	err := pairs(w, "  ", [][2]string{
		{"reason", d.Reason},
		{"address", d.Address},
		{"cluster", d.Cluster},
		{"gateway", d.Gateway},
		{"rule", d.Rule},
		{"revision", strconv.FormatUint(d.Revision, 10)},
	})
	if err != nil || len(d.Routes) == 0 {
		return err
	}
	fmt.Fprintln(w)
	var table [][]string
	for _, r := range d.Routes {
		taken := ""
		if r.Taken {
			taken = "taken"
		}
		table = append(table, []string{"  " + r.Cluster, number(r.Priority), number(r.Weight), number(r.Ready), taken, r.Reason})
	}
	return rows(w, []string{"  ROUTE", "PRIORITY", "WEIGHT", "READY", "", "WHY"}, table)
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

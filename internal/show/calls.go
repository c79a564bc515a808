package show

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Call is a caller of an app, as programs read it: one that may call, one that has called, or both.
type Call struct {
	Callee      string `json:"callee" yaml:"callee"`
	Caller      string `json:"caller" yaml:"caller"`           // "*" stands for any namespace or app; empty: no certificate names it
	Cluster     string `json:"cluster" yaml:"cluster"`         // of the caller: "local", another one, or empty where it is not known
	TrustDomain string `json:"trustDomain" yaml:"trustDomain"` // of the caller; empty where it does not matter or is not known
	Declared    bool   `json:"declared" yaml:"declared"`       // an object names the caller
	Rule        string `json:"rule" yaml:"rule"`               // what lets the caller in; empty: nothing
	LetIn       uint64 `json:"letIn" yaml:"letIn"`             // calls
	Observed    uint64 `json:"observed" yaml:"observed"`       // let in, and refused where the guard enforces
	Refused     uint64 `json:"refused" yaml:"refused"`
	NotReady    uint64 `json:"notReady" yaml:"notReady"`
	TookMs      uint64 `json:"tookMs" yaml:"tookMs"`           // by the app in all, for calls by HTTP
	Last        string `json:"last" yaml:"last"`               // RFC 3339; empty: never seen
	Guard       string `json:"guard" yaml:"guard"`             // the mode of the callee's cluster
	Lacks       string `json:"lacks" yaml:"lacks"`             // what would let the caller in, if nothing does
	NotObserved string `json:"notObserved" yaml:"notObserved"` // why calls of the callee may be unseen; empty: they are seen

	last    int64
	App     catalog.App `json:"-" yaml:"-"` // the caller; empty names stand for any
	Of      catalog.App `json:"-" yaml:"-"` // the callee
	Running bool        `json:"-" yaml:"-"` // the callee has instances here
}

// CallsOf reads the callers of an app.
func CallsOf(m *v1alpha1.Callee) []Call {
	all := make([]Call, 0, len(m.GetCallers()))
	for _, c := range m.GetCallers() {
		n := c.GetCalls()
		call := Call{
			Callee: appName(m.GetApp()), Cluster: c.GetCluster(), TrustDomain: c.GetDomain(), Declared: c.GetDeclared(), Rule: c.GetRule(),
			LetIn: n.GetLetIn(), Observed: n.GetObserved(), Refused: n.GetRefused(), NotReady: n.GetNotReady(), TookMs: n.GetTookMs(),
			Guard: m.GetGuard(), Lacks: c.GetLacks(), NotObserved: m.GetNotObserved(), last: c.GetLastUnixMs(), App: catalog.App{Namespace: c.GetNamespace(), ID: c.GetApp()},
			Of: catalog.App{Namespace: m.GetApp().GetNamespace(), ID: m.GetApp().GetId()}, Running: m.GetRunning(),
		}
		if call.App != (catalog.App{}) || call.Declared {
			call.Caller = cmp.Or(call.App.Namespace, "*") + "/" + cmp.Or(call.App.ID, "*")
		}
		if call.last > 0 {
			call.Last = time.UnixMilli(call.last).UTC().Format(time.RFC3339)
		}
		all = append(all, call)
	}
	return all
}

// Seen tells whether the caller has called.
func (c *Call) Seen() bool { return c.last > 0 }

// CutOff tells whether the caller has called, and an enforcing guard refuses it now.
func (c *Call) CutOff() bool { return c.Seen() && c.Rule == "" }

// From is where the caller runs, in a word.
func (c *Call) From() string {
	switch {
	case c.Cluster == catalog.LocalCluster:
		return "here"
	case c.Cluster != "":
		return c.Cluster
	}
	return "-"
}

// When is how long ago the caller has called, or that it never has; where no guard would see it, that.
func (c *Call) When(now time.Time) string {
	switch {
	case c.Seen():
		return age(c.last, now) + " ago"
	case c.NotObserved != "":
		return "not observed: " + c.NotObserved
	}
	return "never"
}

// Calls writes a line for each caller and callee.
func Calls(w io.Writer, all []Call, now time.Time) error {
	var table [][]string
	for i := range all {
		c := &all[i]
		table = append(table, []string{
			cmp.Or(c.Caller, "unknown"), c.From(), c.Callee, cmp.Or(c.Rule, "nothing"), count(c.LetIn), count(c.Observed), count(c.Refused + c.NotReady), c.When(now),
		})
	}
	return rows(w, []string{"CALLER", "IN", "CALLEE", "LET IN BY", "LET IN", "OBSERVED", "REFUSED", "LAST"}, table)
}

func count(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// Callers writes who may call an app, and by which object.
func Callers(w io.Writer, all []Call, undeclared uint32) error {
	var table [][]string
	for i := range all {
		if c := &all[i]; c.Rule != "" {
			table = append(table, []string{cmp.Or(c.Caller, "unknown"), c.From(), cmp.Or(c.TrustDomain, "-"), c.Rule})
		}
	}
	if undeclared > 0 {
		table = append(table, []string{fmt.Sprintf("%d without AppEndpoints", undeclared), "here", "-", catalog.DefaultRule})
	}
	return rows(w, []string{"CALLER", "IN", "TRUST DOMAIN", "LET IN BY"}, table, "TRUST DOMAIN")
}

// Inbound writes whether a callee lets a caller in, by the lines about the caller.
func Inbound(w io.Writer, caller, callee string, all []Call) {
	guard, lacks := "observe", "the service does not say what it lacks"
	var rules []string
	for i := range all {
		guard, lacks = all[i].Guard, cmp.Or(all[i].Lacks, lacks)
		if all[i].Rule != "" {
			rules = append(rules, all[i].Rule)
		}
	}
	result := "let in"
	if len(rules) == 0 {
		result = map[string]string{"observe": "let in, since the guard only observes", "off": "let in, since the guard is off"}[guard]
		result = cmp.Or(result, "refused")
		rules = []string{"nothing: " + lacks}
	}
	Say(w, "%s calls %s: %s\n", caller, callee, result)
	for _, rule := range rules {
		Say(w, "  let in by  %s\n", rule)
	}
	Say(w, "  guard      %s\n", guard)
}

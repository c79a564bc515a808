package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// CallsOf are the callers of an app, each with the state of the app.
func CallsOf(m *v1alpha1.Callee) []*v1alpha1.Call {
	all := make([]*v1alpha1.Call, 0, len(m.GetCallers()))
	for _, c := range m.GetCallers() {
		n := c.GetCalls()
		call := &v1alpha1.Call{
			Callee: m.GetApp(), Cluster: c.GetCluster(), TrustDomain: c.GetDomain(), Declared: c.GetDeclared(), Rule: c.GetRule(),
			LetIn: n.GetLetIn(), Observed: n.GetObserved(), Refused: n.GetRefused(), NotReady: n.GetNotReady(), TookMs: n.GetTookMs(),
			LastUnixMs: c.GetLastUnixMs(), Guard: m.GetGuard(), Lacks: c.GetLacks(), NotObserved: m.GetNotObserved(),
		}
		if c.GetNamespace()+c.GetApp() != "" || call.Declared {
			call.Caller = cmp.Or(c.GetNamespace(), "*") + "/" + cmp.Or(c.GetApp(), "*")
		}
		all = append(all, call)
	}
	return all
}

// Caller is the app that calls; empty names stand for any.
func Caller(c *v1alpha1.Call) catalog.App {
	namespace, id, _ := strings.Cut(c.GetCaller(), "/")
	if namespace == "*" {
		namespace = ""
	}
	if id == "*" {
		id = ""
	}
	return catalog.App{Namespace: namespace, ID: id}
}

// Callee is the app that is called.
func Callee(c *v1alpha1.Call) catalog.App { return wire.AppOf(c.GetCallee()) }

// Seen tells whether the caller has called.
func Seen(c *v1alpha1.Call) bool { return c.GetLastUnixMs() > 0 }

// CutOff tells whether the caller has called, and an enforcing guard refuses it now.
func CutOff(c *v1alpha1.Call) bool { return Seen(c) && c.GetRule() == "" }

// From is where the caller runs, in a word.
func From(c *v1alpha1.Call) string {
	switch {
	case c.GetCluster() == catalog.LocalCluster:
		return "here"
	case c.GetCluster() != "":
		return c.GetCluster()
	}
	return "-"
}

// When is how long ago the caller has called, or that it never has; where no guard would see it,
// that.
func When(c *v1alpha1.Call, now time.Time) string {
	switch {
	case Seen(c):
		return age(c.GetLastUnixMs(), now) + " ago"
	case c.GetNotObserved() != "":
		return "not observed: " + c.GetNotObserved()
	}
	return "never"
}

// Calls writes a line for each caller and callee.
func Calls(w io.Writer, all []*v1alpha1.Call, now time.Time) error {
	var table [][]string
	for _, c := range all {
		table = append(table, []string{
			cmp.Or(c.GetCaller(), "unknown"), From(c), Name(c.GetCallee()), cmp.Or(c.GetRule(), "nothing"), count(c.GetLetIn()), count(c.GetObserved()), count(c.GetRefused() + c.GetNotReady()), When(c, now),
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
func Callers(w io.Writer, all []*v1alpha1.Call, undeclared uint32) error {
	var table [][]string
	for _, c := range all {
		if c.GetRule() != "" {
			table = append(table, []string{cmp.Or(c.GetCaller(), "unknown"), From(c), cmp.Or(c.GetTrustDomain(), "-"), c.GetRule()})
		}
	}
	if undeclared > 0 {
		table = append(table, []string{fmt.Sprintf("%d without AppEndpoints", undeclared), "here", "-", catalog.DefaultRule})
	}
	return rows(w, []string{"CALLER", "IN", "TRUST DOMAIN", "LET IN BY"}, table, "TRUST DOMAIN")
}

// Inbound writes whether a callee lets a caller in, by the lines about the caller.
func Inbound(w io.Writer, caller, callee string, all []*v1alpha1.Call) {
	guard, lacks := "observe", "the service does not say what it lacks"
	var rules []string
	for _, c := range all {
		guard, lacks = c.GetGuard(), cmp.Or(c.GetLacks(), lacks)
		if c.GetRule() != "" {
			rules = append(rules, c.GetRule())
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

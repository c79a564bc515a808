package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// FaultName names the apps of a fault.
func FaultName(f *v1alpha1.CallFault) string {
	caller, callee := Name(f.GetCaller()), Name(f.GetCallee())
	if caller == "" || callee == "" {
		return caller + callee
	}
	return caller + " to " + callee
}

// Apps writes a line for each app. With details there are its instances, too.
func Apps(w io.Writer, all []*v1alpha1.AppState, leftOut uint32, details bool) error {
	var table [][]string
	for _, a := range all {
		table = append(table, []string{Name(a.GetApp()), Here(a), Elsewhere(a), cmp.Or(strings.Join(a.GetExportedTo(), ", "), "-"), number(a.GetCallers()), yes(a.GetSelection()), health(a)})
	}
	heading := []string{"APP", "HERE", "ELSEWHERE", "EXPORTED TO", "CALLERS", "SELECTION", "CALLS"}
	if !slices.ContainsFunc(all, func(a *v1alpha1.AppState) bool { return len(a.GetFaults()) > 0 }) {
		heading = heading[:len(heading)-1]
		for i := range table {
			table[i] = table[i][:len(heading)]
		}
	}
	if err := rows(w, heading, table, "SELECTION"); err != nil {
		return err
	}
	for _, a := range all {
		for _, f := range a.GetFaults() {
			paragraph(w, "", "  ", FaultName(f)+": "+f.GetWhat())
		}
	}
	if leftOut > 0 {
		paragraph(w, "\n", "", fmt.Sprintf("and %d more that other clusters export and nothing here leads to; isthmus apps --search TEXT finds them, --all lists them", leftOut))
	}
	if !details {
		return nil
	}
	for _, a := range all {
		if len(a.GetInstances()) == 0 {
			continue
		}
		Say(w, "\n%s\n", Name(a.GetApp()))
		var table [][]string
		for _, in := range a.GetInstances() {
			table = append(table, []string{"  " + in.GetAddress(), in.GetSource(), InstanceShown(in), cmp.Or(in.GetZone(), "-"), cmp.Or(in.GetVersion(), "-"), in.GetId()})
		}
		heading, table := said([]string{"  ADDRESS", "SOURCE", "STATE", "ZONE", "VERSION", "ID"}, table, "VERSION")
		if err := rows(w, heading, table); err != nil {
			return err
		}
	}
	return nil
}

// Here is how many instances the app has here, in words.
func Here(a *v1alpha1.AppState) string {
	switch {
	case len(a.GetInstances()) == 0:
		return "-"
	case a.GetDraining() > 0:
		return fmt.Sprintf("%d ready, %d draining", a.GetReady(), a.GetDraining())
	}
	return fmt.Sprintf("%d ready", a.GetReady())
}

// health is how calls to the app end, in a word for each thing that is wrong.
func health(a *v1alpha1.AppState) string {
	var words []string
	for _, f := range a.GetFaults() {
		if !slices.Contains(words, f.GetOutcome()) {
			words = append(words, f.GetOutcome())
		}
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

// Elsewhere is the clusters that have the app, each with its ready instances.
func Elsewhere(a *v1alpha1.AppState) string {
	var all []string
	for _, i := range a.GetImports() {
		text := fmt.Sprintf("%s %d", i.GetCluster(), i.GetReady())
		if i.GetNamed() {
			text = i.GetCluster() + map[bool]string{true: " some", false: " none"}[i.GetReady() > 0]
		}
		if i.GetVersions() != "" {
			text += " (" + i.GetVersions() + ")"
		}
		if i.GetStale() {
			text += " (stale)"
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// InstanceShown is the state of an instance, in words.
func InstanceShown(i *v1alpha1.InstanceState) string {
	switch {
	case i.GetTakenBy() != nil:
		return "address of " + Name(i.GetTakenBy())
	case i.GetDraining():
		return "draining"
	}
	return "ready"
}

// Current tells whether the sidecar has its app's newest view.
func Current(s *v1alpha1.SidecarState) bool {
	return s.GetDelivered() && s.GetRevision() >= s.GetNewestRevision()
}

// Sidecars writes a line for each sidecar.
func Sidecars(w io.Writer, all []*v1alpha1.SidecarState, now time.Time) error {
	var table [][]string
	for _, s := range all {
		table = append(table, []string{Name(s.GetApp()), Where(s), SidecarShown(s), age(s.GetSinceUnixMs(), now), cmp.Or(s.GetZone(), "-"), cmp.Or(s.GetAppVersion(), "-"), cmp.Or(s.GetVersion(), "-"), cmp.Or(strings.TrimPrefix(s.GetRuntime(), "daprd "), "-"), MTLS(s), View(s)})
	}
	heading, table := said([]string{"APP", "ADDRESS", "STATE", "FOR", "ZONE", "APP VERSION", "VERSION", "DAPRD", "MTLS", "VIEW"}, table, "APP VERSION")
	return rows(w, heading, table, "ZONE", "APP VERSION", "VERSION", "DAPRD", "MTLS")
}

// Where is the address that the sidecar has registered, or else where its stream comes from.
func Where(s *v1alpha1.SidecarState) string {
	return cmp.Or(s.GetAddress(), s.GetSource(), "-")
}

// SidecarShown is the state of a sidecar, in words.
func SidecarShown(s *v1alpha1.SidecarState) string {
	if s.GetState() == "waiting" {
		return "waiting for its app"
	}
	if s.GetUnwell() != "" {
		return "draining: its app takes no calls"
	}
	return s.GetState()
}

// View is the revision of the view that a sidecar has, and the newest one where that is another.
func View(s *v1alpha1.SidecarState) string {
	if Current(s) {
		return strconv.FormatUint(s.GetRevision(), 10)
	}
	return fmt.Sprintf("%d, behind %d", s.GetRevision(), s.GetNewestRevision())
}

// MTLS tells whether a sidecar's calls are encrypted: yes or no.
func MTLS(s *v1alpha1.SidecarState) string {
	if s.GetIdentity() == "" || s.GetPlainText() {
		return "no"
	}
	return "yes"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

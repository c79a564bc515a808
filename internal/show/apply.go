package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Applied is what an apply or a delete did, as programs read it.
type Applied struct {
	DryRun   bool     `json:"dryRun" yaml:"dryRun"`
	Revision uint64   `json:"revision" yaml:"revision"`
	Results  []Result `json:"results" yaml:"results"`
	Effects  []Effect `json:"effects" yaml:"effects"`

	// EffectsLeftOut is how many more decisions change than are listed.
	EffectsLeftOut uint32 `json:"effectsLeftOut" yaml:"effectsLeftOut"`
	Counts         Counts `json:"counts" yaml:"counts"` // of all that change

	Exports        []ExportEffect `json:"exports" yaml:"exports"`
	ExportsLeftOut uint32         `json:"exportsLeftOut" yaml:"exportsLeftOut"`

	// Warnings are about what is no mistake of one object and most likely not meant.
	Warnings []string `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// Result is what became of one object.
type Result struct {
	Kind      string `json:"kind" yaml:"kind"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
	Result    string `json:"result" yaml:"result"` // created, changed, unchanged, unchanged in effect or deleted
	Revision  string `json:"revision" yaml:"revision"`
	Diff      string `json:"diff,omitempty" yaml:"diff,omitempty"` // where it was asked for
}

// Effect is one decision that changes. Caller is empty for every app without a
// selection.
type Effect struct {
	Caller string   `json:"caller" yaml:"caller"`
	App    string   `json:"app" yaml:"app"`
	Before Decision `json:"before" yaml:"before"`
	After  Decision `json:"after" yaml:"after"`
}

// Counts are how many lookups change, by what becomes of them.
type Counts struct {
	Fail      uint32 `json:"fail" yaml:"fail"`
	Elsewhere uint32 `json:"elsewhere" yaml:"elsewhere"`
	Back      uint32 `json:"back" yaml:"back"`
	Other     uint32 `json:"other" yaml:"other"` // fail before and after, for another reason
}

// ExportEffect is an app whose callers in another cluster change.
type ExportEffect struct {
	Cluster string   `json:"cluster" yaml:"cluster"`
	App     string   `json:"app" yaml:"app"`
	Result  string   `json:"result" yaml:"result"`
	Removed []string `json:"removed,omitempty" yaml:"removed,omitempty"`
	Added   []string `json:"added,omitempty" yaml:"added,omitempty"`
}

// AppliedOf reads an answer.
func AppliedOf(m *v1alpha1.ApplyResponse, dryRun bool) Applied {
	c := m.GetCounts()
	a := Applied{
		DryRun: dryRun, Revision: m.GetRevision(), Results: []Result{}, Effects: []Effect{}, EffectsLeftOut: m.GetEffectsLeftOut(),
		Counts:  Counts{Fail: c.GetFail(), Elsewhere: c.GetElsewhere(), Back: c.GetBack(), Other: c.GetOther()},
		Exports: []ExportEffect{}, ExportsLeftOut: m.GetExportsLeftOut(), Warnings: m.GetWarnings(),
	}
	for _, r := range m.GetResults() {
		a.Results = append(a.Results, Result{
			Kind: r.GetKey().GetKind(), Namespace: r.GetKey().GetNamespace(), Name: r.GetKey().GetName(),
			Result: r.GetResult(), Revision: r.GetRevision(),
		})
	}
	for _, e := range m.GetEffects() {
		a.Effects = append(a.Effects, Effect{
			Caller: appName(e.GetCaller()), App: appName(e.GetApp()),
			Before: DecisionOf(e.GetBefore()), After: DecisionOf(e.GetAfter()),
		})
	}
	for _, e := range m.GetExports() {
		a.Exports = append(a.Exports, ExportEffect{e.GetCluster(), appName(e.GetApp()), e.GetResult(), e.GetRemoved(), e.GetAdded()})
	}
	return a
}

func appName(a *v1alpha1.App) string {
	if a.GetId() == "" {
		return ""
	}
	return a.GetNamespace() + "/" + a.GetId()
}

// Apply writes what was done, and for a dry run the decisions that would change.
func Apply(w io.Writer, a Applied) error {
	suffix := ""
	if a.DryRun {
		suffix = " (dry run)"
	}
	for _, r := range a.Results {
		Say(w, "%s %s%s\n", keyName(r), r.Result, suffix)
	}
	if !a.DryRun {
		return nil
	}
	exports(w, a)
	paragraph(w, "\n", "", a.Summary())
	if len(a.Effects) == 0 {
		return nil
	}
	Say(w, "\n")
	var table [][]string
	for i := range a.Effects {
		e := &a.Effects[i]
		table = append(table, []string{cmp.Or(e.Caller, "(any without a selection)"), e.App, e.Now(), e.Then()})
	}
	err := rows(w, []string{"CALLER", "APP", "NOW", "THEN"}, table)
	if a.EffectsLeftOut > 0 {
		Say(w, "and %d more\n", a.EffectsLeftOut)
	}
	return err
}

// Summary counts the lookups of this cluster that would change.
func (a *Applied) Summary() string {
	var parts []string
	for _, part := range []struct {
		n    uint32
		what string
	}{
		{a.Counts.Fail, "would fail"},
		{a.Counts.Elsewhere, "would go elsewhere"},
		{a.Counts.Other, "would fail for another reason"},
		{a.Counts.Back, "would succeed again"},
	} {
		switch {
		case part.n > 0 && len(parts) > 0:
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		case part.n == 1:
			parts = append(parts, "1 lookup "+part.what)
		case part.n > 0:
			parts = append(parts, fmt.Sprintf("%d lookups %s", part.n, part.what))
		}
	}
	text := "no lookup in this cluster would end in another way"
	if len(parts) > 0 {
		text = strings.Join(parts, ", ")
	}
	if instancesChange(*a) {
		text += "; what the instances change is known once they are there and checked"
	}
	return text
}

// mostExports bounds the apps that are named for one cluster.
const mostExports = 10

// exports writes what other clusters would be told, a line for each cluster and result.
func exports(w io.Writer, a Applied) {
	if len(a.Exports) == 0 {
		return
	}
	Say(w, "\n")
	said := map[string]string{"withdrawn": "callers in %s would lose %s\n", "exported": "callers in %s would get %s\n"}
	elsewhere := false
	for i := 0; i < len(a.Exports); {
		e := a.Exports[i]
		format, whole := said[e.Result]
		where := e.Cluster
		if where == catalog.LocalCluster {
			where = "other namespaces of this cluster"
		} else {
			elsewhere = true
		}
		if !whole {
			Say(w, "%s: other callers in %s would be allowed%s%s\n", e.App, where, listed("; no longer ", e.Removed), listed("; now also ", e.Added))
			i++
			continue
		}
		var apps []string
		for ; i < len(a.Exports) && a.Exports[i].Cluster == e.Cluster && a.Exports[i].Result == e.Result; i++ {
			apps = append(apps, a.Exports[i].App)
		}
		if more := len(apps) - mostExports; more > 0 {
			apps = append(apps[:mostExports], fmt.Sprintf("%d more", more))
		}
		Say(w, format, where, strings.Join(apps, ", "))
	}
	if a.ExportsLeftOut > 0 {
		Say(w, "and %d more exports would change\n", a.ExportsLeftOut)
	}
	if elsewhere {
		Say(w, "how lookups in these clusters end then is not tried here\n")
	}
}

func listed(before string, names []string) string {
	return after(before, strings.Join(names, ", "))
}

// instancesChange tells whether an AppInstance is among what changes: what becomes of
// lookups depends on what is found at its address.
func instancesChange(a Applied) bool {
	return slices.ContainsFunc(a.Results, func(r Result) bool {
		return r.Kind == string(catalog.KindAppInstance) && r.Result != "unchanged"
	})
}

func keyName(r Result) string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Now is how the lookup ends now, in a few words.
func (e *Effect) Now() string { return briefly(e.Before, e.After) }

// Then is how it would end, in a few words.
func (e *Effect) Then() string { return briefly(e.After, e.Before) }

// briefly is a decision in a few words, with its reason where these are the same for another.
func briefly(d, other Decision) string {
	if text := brief(d); text != brief(other) {
		return text
	}
	return brief(d) + ": " + d.Reason
}

// brief is a decision in a few words: the clusters that its lookups reach, and how many of them.
func brief(d Decision) string {
	var shares []string
	for _, r := range d.Routes {
		if r.Share > 0 && r.Share < 100 {
			shares = append(shares, r.Cluster+" "+percent(r.Share))
		}
	}
	switch {
	case d.Cluster == "":
		return d.Outcome
	case len(shares) > 0:
		return d.Outcome + ", " + strings.Join(shares, ", ")
	}
	return d.Outcome + ", " + d.Cluster
}

// percent is a share of more than 0 and less than 100 %, rounded but to neither.
func percent(share float64) string {
	switch {
	case share < 1:
		return "<1 %"
	case share > 99:
		return ">99 %"
	}
	return fmt.Sprintf("%.0f %%", share)
}

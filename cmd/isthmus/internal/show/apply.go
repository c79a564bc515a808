package show

import (
	"fmt"
	"io"
	"slices"

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

	// Warnings are about what is no mistake of one object and most likely not meant.
	Warnings []string `json:"warnings,omitempty" yaml:"warnings,omitempty"`
}

// Result is what became of one object.
type Result struct {
	Kind      string `json:"kind" yaml:"kind"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
	Result    string `json:"result" yaml:"result"`
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

// AppliedOf reads an answer.
func AppliedOf(m *v1alpha1.ApplyResponse, dryRun bool) Applied {
	a := Applied{DryRun: dryRun, Revision: m.GetRevision(), Results: []Result{}, Effects: []Effect{}, EffectsLeftOut: m.GetEffectsLeftOut(), Warnings: m.GetWarnings()}
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
		fmt.Fprintf(w, "%s %s%s\n", keyName(r), r.Result, suffix)
	}
	if !a.DryRun {
		return nil
	}
	if len(a.Effects) == 0 && instancesChange(a) {
		fmt.Fprintln(w, "\nno lookup would end in another way, but for what instances do: that is known once they are there and checked")
		return nil
	}
	if len(a.Effects) == 0 {
		fmt.Fprintln(w, "\nno lookup would end in another way")
		return nil
	}
	fmt.Fprintln(w)
	var table [][]string
	for _, e := range a.Effects {
		caller := e.Caller
		if caller == "" {
			caller = "(any without a selection)"
		}
		before, after := brief(e.Before), brief(e.After)
		if before == after {
			before, after = before+": "+e.Before.Reason, after+": "+e.After.Reason
		}
		table = append(table, []string{caller, e.App, before, after})
	}
	err := rows(w, []string{"CALLER", "APP", "NOW", "THEN"}, table)
	if a.EffectsLeftOut > 0 {
		fmt.Fprintf(w, "and %d more\n", a.EffectsLeftOut)
	}
	if instancesChange(a) {
		fmt.Fprintln(w, "what the instances change is not among them: it is known once they are there and checked")
	}
	return err
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

// brief is a decision in a few words.
func brief(d Decision) string {
	if d.Cluster == "" {
		return d.Outcome
	}
	return d.Outcome + ", " + d.Cluster
}

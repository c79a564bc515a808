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

// Apply writes the results, and for a dry run the decisions that would change.
func Apply(w io.Writer, a *v1alpha1.ApplyResponse) error {
	suffix := ""
	if a.GetDryRun() {
		suffix = " (dry run)"
	}
	for _, r := range a.GetResults() {
		Say(w, "%s %s%s\n", keyName(r.GetKey()), r.GetResult(), suffix)
	}
	if !a.GetDryRun() {
		return nil
	}
	exports(w, a)
	paragraph(w, "\n", "", Summarize(a))
	if len(a.GetEffects()) == 0 {
		return nil
	}
	Say(w, "\n")
	var table [][]string
	for _, e := range a.GetEffects() {
		table = append(table, []string{cmp.Or(Name(e.GetCaller()), "(any without a selection)"), Name(e.GetApp()), Now(e), Then(e)})
	}
	err := rows(w, []string{"CALLER", "APP", "NOW", "THEN"}, table)
	if a.GetEffectsLeftOut() > 0 {
		Say(w, "and %d more\n", a.GetEffectsLeftOut())
	}
	return err
}

// Summarize counts the lookups of this cluster that would change.
func Summarize(a *v1alpha1.ApplyResponse) string {
	var parts []string
	for _, part := range []struct {
		n    uint32
		what string
	}{
		{a.GetCounts().GetFail(), "would fail"},
		{a.GetCounts().GetElsewhere(), "would go elsewhere"},
		{a.GetCounts().GetOther(), "would fail for another reason"},
		{a.GetCounts().GetBack(), "would succeed again"},
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
	if instancesChange(a) {
		text += "; what the instances change is known once they are there and checked"
	}
	return text
}

// mostExports bounds the apps that are named for one cluster.
const mostExports = 10

// exports writes what other clusters would be told, a line for each cluster and result.
func exports(w io.Writer, a *v1alpha1.ApplyResponse) {
	all := a.GetExports()
	if len(all) == 0 {
		return
	}
	Say(w, "\n")
	said := map[string]string{"withdrawn": "callers in %s would lose %s\n", "exported": "callers in %s would get %s\n"}
	elsewhere := false
	for i := 0; i < len(all); {
		e := all[i]
		format, whole := said[e.GetResult()]
		where := e.GetCluster()
		if where == catalog.LocalCluster {
			where = "other namespaces of this cluster"
		} else {
			elsewhere = true
		}
		if !whole {
			Say(w, "%s: other callers in %s would be allowed%s%s\n", Name(e.GetApp()), where, listed("; no longer ", e.GetRemoved()), listed("; now also ", e.GetAdded()))
			i++
			continue
		}
		var apps []string
		for ; i < len(all) && all[i].GetCluster() == e.GetCluster() && all[i].GetResult() == e.GetResult(); i++ {
			apps = append(apps, Name(all[i].GetApp()))
		}
		if more := len(apps) - mostExports; more > 0 {
			apps = append(apps[:mostExports], fmt.Sprintf("%d more", more))
		}
		Say(w, format, where, strings.Join(apps, ", "))
	}
	if a.GetExportsLeftOut() > 0 {
		Say(w, "and %d more exports would change\n", a.GetExportsLeftOut())
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
func instancesChange(a *v1alpha1.ApplyResponse) bool {
	return slices.ContainsFunc(a.GetResults(), func(r *v1alpha1.ApplyResult) bool {
		return r.GetKey().GetKind() == string(catalog.KindAppInstance) && r.GetResult() != "unchanged"
	})
}

// keyName is how people read the name of an object.
func keyName(k *v1alpha1.ObjectKey) string {
	if k.GetNamespace() == "" {
		return k.GetKind() + " " + k.GetName()
	}
	return k.GetKind() + " " + k.GetNamespace() + "/" + k.GetName()
}

// Now is how the lookup ends now, in a few words.
func Now(e *v1alpha1.Effect) string { return briefly(e.GetBefore(), e.GetAfter()) }

// Then is how it would end, in a few words.
func Then(e *v1alpha1.Effect) string { return briefly(e.GetAfter(), e.GetBefore()) }

// briefly is a decision in a few words, with its reason where these are the same for another.
func briefly(d, other *v1alpha1.Decision) string {
	if text := brief(d); text != brief(other) {
		return text
	}
	return brief(d) + ": " + d.GetReason()
}

// brief is a decision in a few words: the clusters that its lookups reach, and how many of them, and
// the calls that guests take.
func brief(d *v1alpha1.Decision) string {
	var shares, takes []string
	for _, r := range d.GetRoutes() {
		if shared(r) {
			shares = append(shares, r.GetCluster()+" "+percent(r.GetShare()))
		}
		if r.GetTake() != "" {
			takes = append(takes, "; guest "+r.GetCluster()+" takes "+r.GetTake())
		}
	}
	where := d.GetCluster()
	if len(shares) > 0 && where != "" {
		where = strings.Join(shares, ", ")
	}
	return d.GetOutcome() + after(", ", where) + strings.Join(takes, "")
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

package catalog

import "strings"

// View is everything that one app may resolve: immutable, complete, with a revision.
type View struct {
	Revision uint64
	// Open is set if the app has no selection and the cluster's default is "local". Such a view
	// has every app of the cluster, so another app is not found rather than denied.
	Open     bool
	Entries  Table[*Entry]
	Gateways *Gateways // of the clusters that the entries lead to; never nil in a published view
	Zone     string    // of the caller; known only in the caller's sidecar, and empty elsewhere
	Rule     string    // the object or the default selection that decides which apps the view has
}

// Find is the lookup that daprd waits for. It returns an entry that has an address, or a refusal by
// rule 3 or 6. An entry for calls that guests alone take has no address. Find does no I/O, takes no
// lock and allocates nothing when it succeeds.
func (v *View) Find(app App) (*Entry, error) {
	e, ok := v.Entries.Get(app)
	switch {
	case !ok:
		return nil, v.refuse(app)
	case e.single == "" && e.choice == nil && !e.takenNow():
		return nil, e.Refusal()
	}
	return e, nil
}

// ByOwnName returns the entry of an app that the caller calls by the app's own name. Who answers
// with an address alone goes by this: what else a call names, the certificate and the host at a
// gateway, follows from the name that was asked for.
func (v *View) ByOwnName(app App) (e *Entry, ok bool) {
	e, ok = v.Entries.Get(app)
	if ok && e.Name() != e.App {
		return nil, false
	}
	return e, ok
}

// Renumbered returns the same view with another revision.
func (v *View) Renumbered(revision uint64) *View {
	next := *v
	next.Revision = revision
	return &next
}

// refuse returns the error for an app that the view lacks. It reads the same whether the app
// exists or not.
func (v *View) refuse(app App) *Refusal {
	near, as := v.near(app)
	if as {
		return &Refusal{v.Missing(), "the caller calls " + app.String() + " as " + near.String() + ", and by that name alone; see " + v.Rule}
	}
	reason := string(v.appendReason(nil, app))
	if v.Open {
		reason += hereOnly(app)
	}
	if near != (App{}) {
		reason += "; " + DidYouMean(near) + " Names of apps are exact"
	}
	return &Refusal{v.Missing(), reason}
}

// DidYouMean asks whether another app was meant.
func DidYouMean(app App) string { return "did you mean " + app.String() + "?" }

// mostNear is how many apps a view may have for each to be compared with a missing name.
const mostNear = 4096

// near is the name by which the caller calls a missing app, if as is true. Otherwise it is an app of
// the view whose name differs in upper and lower case, or else in its namespace; zero if there is
// none. It reads the view alone, so that it tells a caller nothing that the caller may not see.
func (v *View) near(app App) (near App, as bool) {
	if v.Entries.Len() > mostNear {
		if lower := (App{app.Namespace, strings.ToLower(app.ID)}); lower != app {
			if _, ok := v.Entries.Get(lower); ok {
				return lower, false
			}
		}
		return App{}, false
	}
	for other, e := range v.Entries.All() {
		if e.App == app {
			return other, true
		}
		if !strings.EqualFold(other.ID, app.ID) || other == app {
			continue
		}
		here, best := other.Namespace == app.Namespace, near.Namespace == app.Namespace
		if near == (App{}) || here && !best || here == best && other.Compare(near) < 0 {
			near = other
		}
	}
	return near, false
}

// Missing is the outcome for an app that the view lacks.
func (v *View) Missing() Outcome {
	if v.Open {
		return NotFound
	}
	return Denied
}

// AppendMissing appends the error text of [View.Find] for an app that the view lacks and that a
// DNS name can carry. It keeps no reference to the app's names.
func (v *View) AppendMissing(b []byte, app App) []byte {
	return v.appendReason(append(append(b, v.Missing().String()...), ": "...), app)
}

// appendReason names the app that was asked for and the caller's own object, and nothing else.
func (v *View) appendReason(b []byte, app App) []byte {
	if v.Open {
		b = appendApp(append(b, "this cluster has no app "...), app)
		return append(b, ", and the caller has no AppEndpoints that would lead it to another cluster"...)
	}
	b = appendApp(append(b, "the caller's selection does not hold "...), app)
	if v.Rule == ClosedRule {
		return append(b, "; the caller has no AppEndpoints: write one that holds it"...)
	}
	if object, _, _ := strings.Cut(v.Rule, " ("); object != "" {
		b = append(append(b, "; add it to "...), object...)
	}
	return b
}

func appendApp(b []byte, app App) []byte {
	return append(append(append(b, app.Namespace...), '/'), app.ID...)
}

// hereOnly is why an app is called within its own cluster only; it is empty if other clusters can
// call it.
func hereOnly(app App) string {
	if err := CheckHostAppID(app.ID); err != nil {
		return "; under this app-id it can't be called from other clusters: " + err.Error()
	}
	return ""
}

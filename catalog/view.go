package catalog

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

// Resolve is the lookup that daprd waits for. It returns an address, or a refusal by rule 3 or 6.
// It does no I/O, takes no lock and allocates nothing when it succeeds.
func (v *View) Resolve(app App) (string, error) {
	if e, ok := v.Entries.Get(app); ok {
		if address := e.pick(); address != "" {
			return address, nil
		}
		return "", e.Refusal()
	}
	return "", v.refuse(app)
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
	outcome, before, after := v.refusal()
	if err := CheckHostAppID(app.ID); err != nil && v.Open {
		after = ", and other clusters can't be asked for it: " + err.Error()
	}
	return &Refusal{outcome, before + app.String() + after}
}

func (v *View) refusal() (outcome Outcome, before, after string) {
	if v.Open {
		return NotFound, "this cluster has no app ", ", and the caller has no AppEndpoints that would lead it to another cluster"
	}
	return Denied, "the caller's selection does not hold ", ""
}

// Missing is the outcome for an app that the view lacks.
func (v *View) Missing() Outcome {
	outcome, _, _ := v.refusal()
	return outcome
}

// AppendMissing appends the error text of [View.Resolve] for an app that the view lacks. It keeps
// no reference to the app's names.
func (v *View) AppendMissing(b []byte, app App) []byte {
	outcome, before, after := v.refusal()
	b = append(append(append(b, outcome.String()...), ": "...), before...)
	b = append(append(append(b, app.Namespace...), '/'), app.ID...)
	return append(b, after...)
}

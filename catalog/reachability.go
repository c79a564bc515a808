package catalog

// Reachability is the current routes to one app, as one caller may know them.
type Reachability interface {
	// Local is the route to the app in the caller's own cluster.
	Local() Route
	// Remote is the route to the app in another cluster. Its state is Lapsed if the app is ready
	// there but the cluster's lease has ended, and Damped if the lease ended too often lately.
	Remote(cluster string) Route
	// Exporters are the clusters that export the app to the caller, sorted.
	Exporters() []string
}

// Plan makes the plan of an endpoint: rules 4 to 6 of a lookup. own is the caller's cluster. An
// endpoint without routes gets that cluster first, then every cluster that exports the app to it.
func (e *Endpoint) Plan(own string, known Reachability) *Plan {
	specs := e.Routes
	if len(specs) == 0 {
		specs = defaultRoutes(known.Exporters())
	}
	routes := make([]Route, len(specs))
	for i, spec := range specs {
		r := &routes[i]
		if spec.Cluster == LocalCluster || spec.Cluster == own {
			*r = known.Local()
			r.Local, spec.Cluster = true, own
		} else {
			*r = known.Remote(spec.Cluster)
		}
		r.RouteSpec = spec
		switch {
		case r.State == Lapsed && e.WhenStale == Withdraw:
			r.end(LeaseExpired)
		case r.State == Damped && e.WhenStale == Serve:
			r.State = Ready // it stayed in use when the lease ended
		}
		r.narrow()
	}
	sortRoutes(routes)
	withoutIdleRamps(routes)
	return NewPlan(e.App, routes)
}

func defaultRoutes(exporters []string) []RouteSpec {
	specs := make([]RouteSpec, 1, 1+len(exporters))
	specs[0] = RouteSpec{Cluster: LocalCluster, Weight: DefaultWeight}
	for _, cluster := range exporters {
		specs = append(specs, RouteSpec{Cluster: cluster, Priority: 1, Weight: DefaultWeight})
	}
	return specs
}

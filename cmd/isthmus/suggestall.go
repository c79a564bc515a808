package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// driftInterval is how often --watch looks again.
const driftInterval = 10 * time.Second

// seenCall is a caller and a callee, and where each is.
type seenCall struct {
	caller, callee catalog.App
	from, to       string // clusters
}

// seenCalls are the calls of a cluster in a time.
type seenCalls struct {
	own       string                 // the cluster's name
	edges     map[seenCall]bool      // whether the callee's guard saw them; otherwise the caller alone says so
	unseen    map[catalog.App]string // callees whose callers may be unseen, and why
	nameless  []string               // calls that no object can let in
	incapable []*v1alpha1.MissingReplica
	unknown   string // calls of the window that the service does not know; empty: it knows all
}

// least is the least objects that let in what was seen.
type least struct {
	objects []catalog.Object
	adds    []string // calls that were seen, and that no object holds
	cuts    []string // what stands and was not seen
	left    []string // what no object can hold
}

// suggestAll is suggest --all.
func suggestAll(c *connection, cmd *cobra.Command, dir string, window time.Duration, watch bool) error {
	if watch {
		return watchDrift(c, cmd, window)
	}
	seen, now, err := leastNow(c, cmd, window)
	if err != nil {
		return err
	}
	errs, where := cmd.ErrOrStderr(), ""
	if dir == "" {
		for i, object := range now.objects {
			if i > 0 {
				show.Say(cmd.OutOrStdout(), "---\n")
			}
			if err := write(cmd, object); err != nil {
				return err
			}
		}
	} else if err := writeTree(dir, now.objects, errs); err != nil {
		return err
	} else {
		where = " in " + dir
	}
	show.Say(errs, "%d objects%s for %d callers and callees of cluster %s, by the calls of the last %s\n", len(now.objects), where, len(seen.edges), seen.own, window)
	if seen.unknown != "" {
		show.Say(errs, "%s\n", seen.unknown)
	}
	for _, line := range now.adds {
		show.Say(errs, "new: %s\n", line)
	}
	for _, line := range now.cuts {
		show.Say(errs, "cut off: %s\n", line)
	}
	for _, line := range slices.Concat(seen.nameless, now.left) {
		show.Say(errs, "left out: %s\n", line)
	}
	for _, app := range slices.SortedFunc(maps.Keys(seen.unseen), catalog.App.Compare) {
		show.Say(errs, "kept as it is: who else may call %s, whose callers may be unseen: %s\n", app, seen.unseen[app])
	}
	return show.Missing(errs, seen.incapable)
}

// leastNow asks what was seen and what stands.
func leastNow(c *connection, cmd *cobra.Command, window time.Duration) (*seenCalls, *least, error) {
	status, err := c.status(cmd)
	if err != nil {
		return nil, nil, err
	}
	seen := &seenCalls{own: status.GetCluster(), edges: map[seenCall]bool{}, unseen: map[catalog.App]string{}}
	traffic, err := c.traffic(cmd, &v1alpha1.TrafficRequest{WindowMs: uint64(window.Milliseconds())})
	if err != nil {
		return nil, nil, err
	}
	seen.incapable, seen.unknown = traffic.GetMissing(), unknownCalls(traffic, window)
	for _, e := range traffic.GetEdges() {
		seen.addTraffic(e)
	}
	who, err := callersNow(c, cmd, catalog.App{}, "", catalog.App{})
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(seen.unseen, who.blind)
	since := time.Now().Add(-window).UnixMilli()
	for _, call := range who.all {
		seen.addCall(call, since)
	}
	slices.Sort(seen.nameless)
	seen.nameless = slices.Compact(seen.nameless)
	var standing []catalog.Object
	for _, kind := range []catalog.Kind{catalog.KindAppEndpoints, catalog.KindAppExport} {
		objects, err := c.get(cmd, catalog.Key{Kind: kind})
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			standing = append(standing, o.Object)
		}
	}
	return seen, leastOf(seen, standing), nil
}

// unknownCalls says which calls of a window the service does not know: it keeps them in memory alone.
func unknownCalls(m *v1alpha1.TrafficResponse, window time.Duration) string {
	since := time.UnixMilli(m.GetWholeFromUnixMs())
	if m.GetWholeFromUnixMs() == 0 || time.UnixMilli(m.GetToUnixMs()).Sub(since) >= window {
		return ""
	}
	return fmt.Sprintf("only calls since %s are known: the service, or one of its replicas, began then; what was called before that and not since looks as if nobody needed it", since.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// addTraffic adds what a sidecar of the caller counted. What a guard counted has calls that it refused.
func (s *seenCalls) addTraffic(e *v1alpha1.TrafficEdge) {
	caller, callee := wire.AppOf(e.GetCaller()), wire.AppOf(e.GetCallee())
	switch {
	case e.GetByCallee():
		return // said by addCall
	case e.GetCluster() == "":
		s.nameless = append(s.nameless, fmt.Sprintf("%s calls %s, to which no lookup leads", caller, callee))
		return
	default:
		s.add(seenCall{caller, callee, cmp.Or(e.GetCallerCluster(), s.own), e.GetCluster()}, false)
	}
}

func (s *seenCalls) add(call seenCall, byCallee bool) { s.edges[call] = s.edges[call] || byCallee }

// counts tells whether a call is to be let in. Whoever has an app's certificate can say that it calls
// any other; so the word of the callee's guard counts, where there is one here.
func (s *seenCalls) counts(call seenCall, byCallee bool) bool {
	return byCallee || call.to != s.own || s.unseen[call.callee] != ""
}

// addCall adds what guards have seen since a time.
func (s *seenCalls) addCall(call *v1alpha1.Call, since int64) {
	caller, callee := show.Caller(call), show.Callee(call)
	from := call.GetCluster()
	switch {
	case call.GetLastUnixMs() < since || call.GetLetIn()+call.GetObserved() == 0:
	case caller == (catalog.App{}):
		s.nameless = append(s.nameless, fmt.Sprintf("%s is called without a certificate that names an app", callee))
	case from == "":
		s.nameless = append(s.nameless, fmt.Sprintf("%s of trust domain %s calls %s; no Cluster object names that domain in spec.trust.appDomain", caller, call.GetTrustDomain(), callee))
	default:
		if from == catalog.LocalCluster {
			from = s.own
		}
		s.add(seenCall{caller, callee, from, s.own}, true)
	}
}

// leastOf compares what was seen with the objects that stand.
func leastOf(seen *seenCalls, standing []catalog.Object) *least {
	calls := map[catalog.App]map[catalog.App][]string{}   // of apps here: callee, clusters
	callers := map[catalog.App]map[catalog.Allow]bool{}   // of apps here
	selections := map[catalog.App]*catalog.AppEndpoints{} // that stand
	exports := map[catalog.App]*catalog.AppExport{}       // that stand
	for e, byCallee := range seen.edges {
		if !seen.counts(e, byCallee) {
			continue
		}
		if e.from == seen.own && e.caller != e.callee && e.caller.CheckHost() == nil { // otherwise it can have no objects
			if calls[e.caller] == nil {
				calls[e.caller] = map[catalog.App][]string{}
			}
			calls[e.caller][e.callee] = append(calls[e.caller][e.callee], e.to)
		}
		if e.to == seen.own && e.callee.CheckHost() == nil && (e.from != seen.own || e.caller.Namespace != e.callee.Namespace) {
			if callers[e.callee] == nil {
				callers[e.callee] = map[catalog.Allow]bool{}
			}
			allow := catalog.Allow{Cluster: e.from, Namespace: e.caller.Namespace, App: e.caller.ID}
			if e.from == seen.own {
				allow.Cluster = catalog.LocalCluster
			}
			callers[e.callee][allow] = true
		}
	}
	for _, object := range standing {
		switch o := object.(type) {
		case *catalog.AppEndpoints:
			if selections[o.App] = o; !o.IsDefault() && calls[o.App] == nil {
				calls[o.App] = map[catalog.App][]string{}
			}
		case *catalog.AppExport:
			if exports[o.App] = o; callers[o.App] == nil {
				callers[o.App] = map[catalog.Allow]bool{}
			}
		}
	}
	l := &least{}
	for _, app := range slices.SortedFunc(maps.Keys(calls), catalog.App.Compare) {
		l.selection(seen, app, calls[app], selections)
	}
	for _, app := range slices.SortedFunc(maps.Keys(callers), catalog.App.Compare) {
		l.export(seen, app, callers[app], exports[app])
	}
	l.objects = slices.DeleteFunc(l.objects, func(o catalog.Object) bool {
		_, errs := api.DecodeYAML("", api.EncodeYAML(o))
		if len(errs) > 0 { // by what a sidecar makes up; apply would refuse all objects for this one
			l.left = append(l.left, fmt.Sprintf("%s: %s: %s", o.Key(), errs[0].Path, errs[0].What))
		}
		return len(errs) > 0
	})
	slices.Sort(l.left)
	return l
}

// selection adds the AppEndpoints of a caller.
func (l *least) selection(seen *seenCalls, caller catalog.App, calls map[catalog.App][]string, standing map[catalog.App]*catalog.AppEndpoints) {
	next := &catalog.AppEndpoints{App: caller}
	var old *catalog.AppEndpoints
	for _, name := range selectionsOf(caller) {
		if old = standing[name]; old != nil {
			old = old.For(caller)
			next.Actors = old.Actors // their calls are not seen here
			break
		}
	}
	held := map[catalog.App]catalog.Endpoint{}
	if old != nil {
		for _, e := range old.Endpoints {
			held[e.App] = e
			if calls[e.App] == nil {
				l.cuts = append(l.cuts, fmt.Sprintf("%s does not call %s", caller, e.App))
			}
		}
	}
	for _, callee := range slices.SortedFunc(maps.Keys(calls), catalog.App.Compare) {
		e, ok := held[callee]
		if old != nil && !ok {
			if other := named(old.Endpoints, caller, callee); other != (catalog.App{}) {
				l.left = append(l.left, fmt.Sprintf("%s called %s before its name meant %s", caller, callee, other))
				continue
			}
		}
		if !ok {
			e = catalog.Endpoint{App: callee, Routes: routesTo(calls[callee], seen.own)}
			l.adds = append(l.adds, fmt.Sprintf("%s calls %s in %s", caller, callee, strings.Join(slices.Sorted(slices.Values(calls[callee])), ", ")))
		}
		next.Endpoints = append(next.Endpoints, e)
	}
	l.objects = append(l.objects, next)
}

// routesTo leads to the clusters that were called, to the own one first.
func routesTo(clusters []string, own string) (routes []catalog.RouteSpec) {
	here := slices.Contains(clusters, own)
	if here {
		routes = append(routes, catalog.RouteSpec{Cluster: catalog.LocalCluster, Weight: catalog.DefaultWeight})
	}
	for _, cluster := range slices.Compact(slices.Sorted(slices.Values(clusters))) {
		if cluster != own {
			spec := catalog.RouteSpec{Cluster: cluster, Weight: catalog.DefaultWeight}
			if here {
				spec.Priority = 1
			}
			routes = append(routes, spec)
		}
	}
	return routes
}

// export adds the AppExport of a callee.
func (l *least) export(seen *seenCalls, callee catalog.App, callers map[catalog.Allow]bool, standing *catalog.AppExport) {
	if seen.unseen[callee] != "" {
		if standing != nil {
			l.objects = append(l.objects, standing)
		}
		return
	}
	next := &catalog.AppExport{App: callee}
	for allow := range callers {
		cluster := allow.Cluster
		if cluster == catalog.LocalCluster {
			cluster = seen.own
		}
		caller := catalog.App{Namespace: allow.Namespace, ID: allow.App}
		if err := caller.CheckHost(); err != nil {
			l.left = append(l.left, fmt.Sprintf("%s of %s calls %s, and no AppExport can name it: %v", caller, cluster, callee, err))
			continue
		}
		next.Allow = append(next.Allow, allow)
		if standing == nil || !slices.ContainsFunc(standing.Allow, func(a catalog.Allow) bool {
			return a.Allows(cluster, caller) || a.Allows(allow.Cluster, caller)
		}) {
			l.adds = append(l.adds, fmt.Sprintf("%s of %s calls %s", caller, cluster, callee))
		}
	}
	slices.SortFunc(next.Allow, func(a, b catalog.Allow) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App))
	})
	if standing != nil {
		for _, a := range standing.Allow {
			if callers[a] {
				continue
			}
			n := 0
			for allow := range callers {
				if a.Allows(allow.Cluster, catalog.App{Namespace: allow.Namespace, ID: allow.App}) {
					n++
				}
			}
			what := fmt.Sprintf("AppExport %s allows %s of %s", callee, cmp.Or(a.Namespace, "*")+"/"+cmp.Or(a.App, "*"), cmp.Or(a.Cluster, "*"))
			if n > 0 {
				what += fmt.Sprintf(", of whom %d called and are named now", n)
			} else {
				what += ", who did not call"
			}
			l.cuts = append(l.cuts, what)
		}
	}
	if len(next.Allow) > 0 || standing != nil { // which would let everybody in as before, if it were left out
		l.objects = append(l.objects, next)
	}
}

// writeTree writes each object into a file of its own, below a folder for its namespace.
func writeTree(dir string, objects []catalog.Object, errs io.Writer) error {
	wrote := map[string]bool{}
	for _, object := range objects {
		key := object.Key()
		name := filepath.Join(dir, key.Namespace, key.Name+"."+strings.ToLower(string(key.Kind))+".yaml")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("make the folder of %s: %w", key, err)
		}
		text := api.EncodeYAML(object)
		if err := atomicfile.Write(name, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
		wrote[name] = true
	}
	for _, kind := range []catalog.Kind{catalog.KindAppEndpoints, catalog.KindAppExport} {
		there, err := filepath.Glob(filepath.Join(dir, "*", "*."+strings.ToLower(string(kind))+".yaml"))
		if err != nil {
			return err
		}
		for _, name := range there {
			if !wrote[name] {
				show.Say(errs, "no longer needed, so delete it: %s\n", name)
			}
		}
	}
	return nil
}

// watchDrift says what was seen and no object holds, and what stands and was not seen, and then what
// comes to be so.
func watchDrift(c *connection, cmd *cobra.Command, window time.Duration) error {
	told, unknown := map[string]bool{}, ""
	for {
		seen, now, err := leastNow(c, cmd, window)
		if err != nil {
			if errors.Is(cmd.Context().Err(), context.Canceled) {
				return nil
			}
			return err
		}
		drift := map[string]bool{}
		for _, line := range now.adds {
			drift["+ "+line] = true
		}
		for _, line := range now.cuts {
			drift["- "+line] = true
		}
		at := time.Now().Format(time.TimeOnly)
		if seen.unknown != unknown && seen.unknown != "" {
			show.Say(cmd.OutOrStdout(), "%s %s\n", at, seen.unknown)
		}
		unknown = seen.unknown
		for _, line := range slices.Sorted(maps.Keys(drift)) {
			if !told[line] {
				show.Say(cmd.OutOrStdout(), "%s %s\n", at, catalog.Printable(line))
			}
		}
		for _, line := range slices.Sorted(maps.Keys(told)) {
			if !drift[line] {
				show.Say(cmd.OutOrStdout(), "%s settled: %s\n", at, catalog.Printable(line[2:]))
			}
		}
		if told = drift; !live.Sleep(cmd.Context(), driftInterval) {
			return nil
		}
	}
}

package pages

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// appList is the page of all apps.
type appList struct {
	Search string
	Apps   []*v1alpha1.AppState
	Total  int
	More   int    // apps of other clusters that nothing here leads to, and only a search finds
	Next   string // the app that the next page begins after
}

func appsPage(r *request) (*content, error) {
	v := &appList{Search: strings.TrimSpace(r.FormValue("q"))}
	req := &v1alpha1.AppsRequest{Search: v.Search, Most: mostRows + 1, WithoutNamed: v.Search == ""}
	if after := r.FormValue("after"); after != "" {
		app, err := catalog.ParseApp(after)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "after: %v", err)
		}
		req.After = wire.App(app)
	}
	all, err := r.apps(req)
	if err != nil {
		return nil, err
	}
	if v.Apps, v.Total, v.More = all.apps, all.matched, all.leftOut; len(v.Apps) > mostRows {
		v.Apps, v.Next = v.Apps[:mostRows], show.Name(v.Apps[mostRows-1].GetApp())
	}
	command := "isthmus apps"
	if v.Search != "" {
		command += " --search " + v.Search
	}
	return &content{Page: v, Title: "Apps", Command: command, Live: true}, nil
}

// appView is the page of one app.
type appView struct {
	App        string
	State      *v1alpha1.AppState // nil where the service has never heard of it
	Selection  *object            // its AppEndpoints
	Export     *object            // its AppExport
	Faults     []fault
	Over       []tab
	Window     string
	In, Out    *calls
	Missing    []*v1alpha1.MissingReplica
	Changes    []change // the newest first
	Instances  []instance
	Callers    []*v1alpha1.Call
	MoreCalls  int // that are not listed
	Undeclared uint32
	Callees    []*v1alpha1.GraphCall
	MoreWays   int // that are not listed
	Picture    *picture
	Now        time.Time
}

// calls are those to an app, or of one, in a time.
type calls struct {
	Figures string // empty without calls
	Edges   []*v1alpha1.TrafficEdge
	More    int // that are not listed
	Charts  []*chart
}

// instance is what is known of one: by what runs it, and by its sidecar.
type instance struct {
	Address, Source, State, Zone, ID, Connected, Runtime, MTLS, View string
}

func appPage(r *request) (*content, error) {
	app, err := r.pathApp()
	if err != nil {
		return nil, err
	}
	v := &appView{App: app.String(), Now: r.now}
	found, err := r.apps(&v1alpha1.AppsRequest{Namespace: app.Namespace, Id: app.ID})
	if err != nil {
		return nil, err
	}
	if len(found.apps) > 0 {
		v.State = found.apps[0]
	}
	if v.Selection, err = r.optional(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: app.ID}); err != nil {
		return nil, err
	}
	if v.Export, err = r.optional(catalog.Key{Kind: catalog.KindAppExport, Namespace: app.Namespace, Name: app.ID}); err != nil {
		return nil, err
	}
	if v.Callers, v.Undeclared, err = r.calls(&v1alpha1.CallsRequest{Callee: wire.App(app)}); err != nil {
		return nil, err
	}
	if n := len(v.Callers); n > mostCallersRow {
		v.Callers, v.MoreCalls = v.Callers[:mostCallersRow], n-mostCallersRow
	}
	sidecars, err := r.sidecars(&v1alpha1.SidecarsRequest{Namespace: app.Namespace, Id: app.ID})
	if err != nil {
		return nil, err
	}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	for _, f := range now.GetCallFaults() {
		if show.Name(f.GetCaller()) == v.App || show.Name(f.GetCallee()) == v.App {
			v.Faults = append(v.Faults, faultOf(r, f))
		}
	}
	v.Instances = instances(v.State.GetInstances(), sidecars, r.now)
	around, err := r.appTraffic(v, app, now)
	if err != nil {
		return nil, err
	}
	g, err := r.graph(&v1alpha1.GraphRequest{Focus: wire.App(app)})
	if err != nil {
		return nil, err
	}
	live := addTraffic(g, around)
	narrow(g, mapQuery{App: v.App, Steps: 1})
	for _, c := range g.GetCalls() {
		if show.Name(c.GetCaller()) == v.App && c.GetIn() == g.GetCluster() {
			v.Callees = append(v.Callees, c)
		}
	}
	if n := len(v.Callees); n > mostFlows {
		v.Callees, v.MoreWays = v.Callees[:mostFlows], n-mostFlows
	}
	v.Picture, _ = drawFitting(g, live, v.App, "")
	if v.State == nil && v.Selection == nil && v.Export == nil && len(g.GetCalls()) == 0 {
		return nil, refuse(http.StatusNotFound, "no app %s: it has no instance, no object here is about it, and no other cluster exports it to this one", v.App)
	}
	return &content{Page: v, Title: v.App, Command: "isthmus top " + v.App + " --window " + v.Window, Live: true}, nil
}

// soon is how long after the start of a service an hour of calls is mostly empty.
const soon = 15 * time.Minute

// appTraffic has a page tell of the calls of an app and of those to it, and returns them.
func (r *request) appTraffic(v *appView, app catalog.App, now *v1alpha1.StatusResponse) (*v1alpha1.TrafficResponse, error) {
	usual := "1h"
	if r.now.Sub(time.UnixMilli(now.GetStartedUnixMs())) < soon {
		usual = "5m"
	}
	w, err := windowOf(r.FormValue, usual)
	if err != nil {
		return nil, err
	}
	v.Window, v.Over = w.Name, w.tabs(windows, func(over string) string { return withQuery(appPath(v.App), "over", over) })
	step := uint64(w.step.Milliseconds())
	in, err := r.traffic(&v1alpha1.TrafficRequest{Callee: wire.App(app), StepMs: step}, w)
	if err != nil {
		return nil, err
	}
	v.Missing = in.GetMissing()
	out, err := r.traffic(&v1alpha1.TrafficRequest{Caller: wire.App(app), StepMs: step}, w)
	if err != nil {
		return nil, err
	}
	keys := []catalog.Key{
		{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: app.ID}, {Kind: catalog.KindAppExport, Namespace: app.Namespace, Name: app.ID},
		{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: catalog.DefaultName}, {Kind: catalog.KindAppEndpoints, Namespace: catalog.DefaultName, Name: catalog.DefaultName},
	}
	for _, e := range out.GetEdges() {
		if cluster := e.GetCluster(); cluster != "" && cluster != now.GetCluster() {
			keys = append(keys, clusterKey(cluster))
		}
	}
	toIt, ofIt := timesOf(in, w), timesOf(out, w)
	if v.Changes, err = r.changes(keys, toIt); err != nil {
		return nil, err
	}
	v.In, v.Out = callsOf(in), callsOf(out)
	if v.In.Figures != "" {
		v.In.Charts = []*chart{toIt.rates("Calls to it, a second", v.Changes), toIt.latencies("Latency of calls to it, 99th percentile", v.Changes)}
	}
	if v.Out.Figures != "" {
		v.Out.Charts = []*chart{ofIt.rates("Its calls, a second", v.Changes), ofIt.latencies("Latency of its calls, 99th percentile", v.Changes)}
	}
	slices.Reverse(v.Changes)
	return &v1alpha1.TrafficResponse{FromUnixMs: in.GetFromUnixMs(), ToUnixMs: in.GetToUnixMs(), Edges: append(in.GetEdges(), out.GetEdges()...)}, nil
}

func callsOf(m *v1alpha1.TrafficResponse) *calls {
	c := &calls{Figures: figures(m), Edges: m.GetEdges()}
	if n := len(c.Edges); n > mostFlows {
		c.Edges, c.More = c.Edges[:mostFlows], n-mostFlows
	}
	return c
}

// instances are those that sources know, with what their sidecars tell, and sidecars that are none.
func instances(all []*v1alpha1.InstanceState, sidecars []*v1alpha1.SidecarState, now time.Time) (rows []instance) {
	at := map[string]int{}
	for _, i := range all {
		at[i.GetAddress()] = len(rows)
		rows = append(rows, instance{Address: i.GetAddress(), Source: i.GetSource(), State: show.InstanceShown(i), Zone: i.GetZone(), ID: i.GetId()})
	}
	for _, s := range sidecars {
		i, known := at[s.GetAddress()]
		if !known || s.GetAddress() == "" {
			i, rows = len(rows), append(rows, instance{Address: show.Where(s), Source: "its sidecar", State: show.SidecarShown(s), Zone: s.GetZone(), ID: s.GetInstance()})
		}
		rows[i].Connected, rows[i].Runtime, rows[i].MTLS, rows[i].View = ago(s.GetSinceUnixMs(), now), s.GetRuntime(), show.MTLS(s), show.View(s)
		if s.GetUnwell() != "" {
			rows[i].State += ": " + s.GetUnwell()
		}
	}
	return rows
}

// optional is an object; nil where there is none.
func (r *request) optional(key catalog.Key) (*object, error) {
	o, err := r.optionalObject(key)
	if o == nil || err != nil {
		return nil, err
	}
	return objectOf(o), nil
}

func (r *request) optionalObject(key catalog.Key) (*show.Object, error) {
	all, err := r.objects(key)
	if status.Code(err) == codes.NotFound || err == nil && len(all) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// history are the versions of an object; none where the store keeps none.
func (r *request) history(key catalog.Key) ([]*v1alpha1.PastObject, error) {
	answer, err := v1alpha1.NewObjectsClient(r.Conn).History(r.ctx, &v1alpha1.HistoryRequest{Key: wire.Key(key)})
	switch status.Code(err) {
	case codes.OK:
		return answer.GetVersions(), show.Compared(answer, key)
	case codes.FailedPrecondition, codes.NotFound, codes.Unimplemented:
		return nil, nil
	}
	return nil, err
}

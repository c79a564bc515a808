package pages

import (
	"net/http"
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
	Next   string // the app that the next page begins after
}

func appsPage(r *request) (*content, error) {
	v := &appList{Search: strings.TrimSpace(r.FormValue("q"))}
	req := &v1alpha1.AppsRequest{Search: v.Search, Most: mostRows + 1}
	if after := r.FormValue("after"); after != "" {
		app, err := catalog.ParseApp(after)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "after: %v", err)
		}
		req.After = wire.App(app)
	}
	var err error
	if v.Apps, v.Total, err = r.apps(req); err != nil {
		return nil, err
	}
	if len(v.Apps) > mostRows {
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
	Callers    []*v1alpha1.Call
	Undeclared uint32
	Callees    []*v1alpha1.GraphCall
	Sidecars   []*v1alpha1.SidecarState
	History    []*v1alpha1.PastObject
	Picture    *picture
	Now        time.Time
}

func appPage(r *request) (*content, error) {
	app, err := r.pathApp()
	if err != nil {
		return nil, err
	}
	v := &appView{App: app.String(), Now: r.now}
	states, _, err := r.apps(&v1alpha1.AppsRequest{Namespace: app.Namespace, Id: app.ID})
	if err != nil {
		return nil, err
	}
	if len(states) > 0 {
		v.State = states[0]
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
	if v.Sidecars, err = r.sidecars(&v1alpha1.SidecarsRequest{Namespace: app.Namespace, Id: app.ID}); err != nil {
		return nil, err
	}
	if v.Selection != nil {
		if v.History, err = r.history(v.Selection.Key); err != nil {
			return nil, err
		}
		v.History = v.History[:min(len(v.History), 5)]
	}
	g, err := r.graph(&v1alpha1.GraphRequest{Focus: wire.App(app)})
	if err != nil {
		return nil, err
	}
	narrow(g, mapQuery{App: v.App, Steps: 1})
	for _, c := range g.GetCalls() {
		if show.Name(c.GetCaller()) == v.App && c.GetIn() == g.GetCluster() {
			v.Callees = append(v.Callees, c)
		}
	}
	v.Picture, _ = drawFitting(g, nil, v.App, "")
	if v.State == nil && v.Selection == nil && v.Export == nil && len(g.GetCalls()) == 0 {
		return nil, refuse(http.StatusNotFound, "no app %s: it has no instance, no object here is about it, and no other cluster exports it to this one", v.App)
	}
	return &content{Page: v, Title: v.App, Command: "isthmus explain --to " + v.App, Live: true}, nil
}

// optional is an object; nil where there is none.
func (r *request) optional(key catalog.Key) (*object, error) {
	all, err := r.objects(key)
	if status.Code(err) == codes.NotFound || err == nil && len(all) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return objectOf(&all[0]), nil
}

// history are the versions of an object; none where the store keeps none.
func (r *request) history(key catalog.Key) ([]*v1alpha1.PastObject, error) {
	answer, err := v1alpha1.NewObjectsClient(r.Conn).History(r.ctx, &v1alpha1.HistoryRequest{Key: wireKey(key)})
	switch status.Code(err) {
	case codes.OK:
		return answer.GetVersions(), show.Compared(answer, key)
	case codes.FailedPrecondition, codes.NotFound, codes.Unimplemented:
		return nil, nil
	}
	return nil, err
}

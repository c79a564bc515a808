package admin

import (
	"net/http"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// viewPage is one app's view as /debug/views shows it.
type viewPage struct {
	App      string              `json:"app"`
	Revision uint64              `json:"revision"`
	Open     bool                `json:"open"`
	Gateways map[string][]string `json:"gateways"`
	Entries  []entryPage         `json:"entries"`
}

type entryPage struct {
	App     string      `json:"app"`
	Outcome string      `json:"outcome"`
	Rule    string      `json:"rule"`
	Reason  string      `json:"reason"`
	Routes  []routePage `json:"routes"`
}

type routePage struct {
	Cluster   string   `json:"cluster"`
	Priority  uint32   `json:"priority"`
	Weight    uint32   `json:"weight"`
	Ready     uint32   `json:"ready"`
	Gateway   bool     `json:"gateway"`
	Reason    string   `json:"reason"`
	Addresses []string `json:"addresses"`
}

func (s *Server) views(w http.ResponseWriter, req *http.Request) {
	name := req.URL.Query().Get("app")
	if name == "" {
		apps := []string{}
		for _, app := range s.cfg.Apps() {
			apps = append(apps, app.String())
		}
		writeJSON(w, http.StatusOK, map[string]any{
			"apps": apps,
			"note": "apps with a selection; every other app follows defaultSelection. ?app=namespace/app-id shows a view",
		})
		return
	}
	app, err := catalog.ParseApp(name)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	view, ok := s.cfg.View(app)
	if !ok {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "not ready: the config store's full set has not arrived yet"})
		return
	}
	writeJSON(w, http.StatusOK, pageOf(app, view))
}

func pageOf(app catalog.App, v *catalog.View) viewPage {
	p := viewPage{App: app.String(), Revision: v.Revision, Open: v.Open, Entries: []entryPage{}}
	if v.Gateways != nil {
		p.Gateways = v.Gateways.Addresses
	}
	for _, e := range v.Entries.All() {
		p.Entries = append(p.Entries, entryOf(e))
	}
	slices.SortFunc(p.Entries, func(a, b entryPage) int {
		if a.App < b.App {
			return -1
		}
		return 1
	})
	return p
}

func entryOf(e *catalog.Entry) entryPage {
	d := e.Explain()
	p := entryPage{App: e.App.String(), Outcome: d.Outcome.String(), Rule: d.Rule, Reason: d.Reason, Routes: make([]routePage, len(e.Routes))}
	for i := range e.Routes {
		r := &e.Routes[i]
		p.Routes[i] = routePage{
			Cluster: r.Cluster, Priority: r.Priority, Weight: r.Weight, Ready: r.Ready,
			Gateway: r.Gateway, Reason: d.Routes[i].Reason, Addresses: r.Addresses,
		}
	}
	return p
}

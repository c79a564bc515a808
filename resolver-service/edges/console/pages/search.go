package pages

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// searchView is the page of a search in everything.
type searchView struct {
	Query  string
	Groups []found
}

// found are things of one kind.
type found struct {
	Kind string
	Of   int    // how many there are
	More string // where all of them are
	List []result
}

// result is a thing that a search has found.
type result struct{ Text, Note, Href string }

// mostFound is how many things of a kind a search lists.
const mostFound = 20

func searchPage(r *request) (*content, error) {
	v := &searchView{Query: strings.TrimSpace(r.FormValue("q"))}
	shown := &content{Page: v, Title: "Search", Command: "isthmus apps --search TEXT"}
	if v.Query == "" {
		return shown, nil
	}
	shown.Title, shown.Command = "Search: "+v.Query, "isthmus apps --search "+v.Query
	for _, look := range []func(*request, *searchView) error{searchApps, searchObjects, searchClusters, searchEvents} {
		if err := look(r, v); err != nil {
			return nil, err
		}
	}
	pages := found{Kind: "Pages"}
	for _, p := range places {
		if contains(p.Name, v.Query) {
			pages.List = append(pages.List, result{p.Name, "", p.Path})
		}
	}
	v.add(pages)
	return shown, nil
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

func (v *searchView) add(f found) {
	if len(f.List) == 0 {
		return
	}
	f.Of = max(f.Of, len(f.List))
	f.List = f.List[:min(len(f.List), mostFound)]
	v.Groups = append(v.Groups, f)
}

func searchApps(r *request, v *searchView) error {
	all, err := r.apps(&v1alpha1.AppsRequest{Search: v.Query, Most: mostFound})
	f := found{Kind: "Apps", Of: all.matched, More: withQuery("/apps", "q", v.Query)}
	for _, a := range all.apps {
		name := show.Name(a.GetApp())
		f.List = append(f.List, result{name, show.Here(a), appPath(name)})
	}
	v.add(f)
	return err
}

func searchObjects(r *request, v *searchView) error {
	all, matched, err := r.inForce(&v1alpha1.GetRequest{Search: v.Query, Most: mostFound})
	f := found{Kind: "Objects", Of: matched, More: withQuery("/objects", "q", v.Query)}
	for _, o := range all {
		f.List = append(f.List, result{o.Key().String(), "revision " + o.Revision, objectPath(o.Key())})
	}
	v.add(f)
	return err
}

func searchClusters(r *request, v *searchView) error {
	now, err := r.status()
	f := found{Kind: "Clusters", More: "/links"}
	for _, p := range now.GetPeers() {
		if contains(p.GetCluster(), v.Query) {
			f.List = append(f.List, result{p.GetCluster(), p.GetState(), linkPath(p.GetCluster())})
		}
	}
	v.add(f)
	return err
}

func searchEvents(r *request, v *searchView) error {
	all, err := r.events(r.now.Add(-lately))
	f := found{Kind: "Events of the last day", More: withQuery("/events", "since", lately.String(), "q", v.Query)}
	for _, e := range slices.Backward(all) {
		if contains(eventText(e), v.Query) {
			f.List = append(f.List, result{moment(e.GetLastUnixMs()) + ": " + e.GetMessage(), strings.ToLower(e.GetLevel()), eventPath(e)})
		}
	}
	v.add(f)
	return err
}

// eventPath is the page of an event, which stays the same while it happens again.
func eventPath(e *v1alpha1.Event) string { return "/events/" + eventID(e) }

func eventID(e *v1alpha1.Event) string { return identifier("event", e.GetFirstUnixMs(), eventText(e)) }

// eventView is the page of one event.
type eventView struct {
	*v1alpha1.Event
	Fields  []eventField
	Explain string            // where the call that it is about is explained; empty if it is about none
	Around  []*v1alpha1.Event // within a minute, the newest first
}

// eventField is a field of an event, with the page of what it names.
type eventField struct{ Name, Value, Href string }

// nearby is how long before and after an event others are told of.
const nearby = time.Minute

func eventPage(r *request) (*content, error) {
	all, err := r.events(time.UnixMilli(0))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(e *v1alpha1.Event) bool { return eventID(e) == r.PathValue("id") })
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "no event %s is remembered: a service remembers so many, and forgets them when it ends", r.PathValue("id"))
	}
	e := all[i]
	v := &eventView{Event: e}
	values := map[string]string{}
	for _, f := range e.GetFields() {
		values[f.GetName()] = f.GetValue()
		v.Fields = append(v.Fields, eventField{f.GetName(), f.GetValue(), fieldPage(f)})
	}
	if values["caller"] != "" && values["callee"] != "" {
		v.Explain = explainPath(values["caller"], values["callee"])
	}
	for _, o := range slices.Backward(all) {
		if o != e && o.GetLastUnixMs() >= e.GetFirstUnixMs()-nearby.Milliseconds() && o.GetFirstUnixMs() <= e.GetLastUnixMs()+nearby.Milliseconds() && len(v.Around) < mostRows {
			v.Around = append(v.Around, o)
		}
	}
	age := r.now.Sub(time.UnixMilli(e.GetFirstUnixMs())).Truncate(time.Minute) + time.Minute
	return &content{Page: v, Title: cmp.Or(e.GetMessage(), "Event"), Command: "isthmus events --since " + strings.TrimSuffix(age.String(), "0s")}, nil
}

// fieldPage is the page of what a field of an event names; empty where there is none.
func fieldPage(f *v1alpha1.EventField) string {
	switch f.GetName() {
	case "app", "caller", "callee":
		if app, err := catalog.ParseApp(f.GetValue()); err == nil {
			return appPath(app.String())
		}
	case "peer":
		if catalog.CheckCluster(f.GetValue()) == nil {
			return linkPath(f.GetValue())
		}
	case "first", "object":
		if key, _, ok := ruleKey(f.GetValue()); ok {
			return objectPath(key)
		}
	}
	return ""
}

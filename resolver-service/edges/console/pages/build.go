package pages

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// builder is the page that makes an object of an app from what is chosen in a form.
type builder struct {
	Kind     catalog.Kind
	App      string
	Names    []string // of apps
	Clusters []string // others
	Rows     []builtRow
	Wrong    string
	YAML     string // empty until the form has enough
	Added    bool   // to what the object had
}

// builtRow is a line of the form: a callee and where its calls go, or a caller that is let in.
type builtRow struct {
	Name    string // of the callee; of a caller, with * for any
	Cluster string
	Weight  string
}

// formRows is how many lines the form has.
const formRows = 3

func buildPage(r *request) (*content, error) {
	v := &builder{Kind: catalog.Kind(cmp.Or(r.FormValue("kind"), string(catalog.KindAppEndpoints))), App: strings.TrimSpace(r.FormValue("app"))}
	if v.Kind != catalog.KindAppEndpoints && v.Kind != catalog.KindAppExport {
		return nil, refuse(http.StatusBadRequest, "kind: want AppEndpoints or AppExport, not %q", v.Kind)
	}
	shown := &content{Page: v, Title: "Build an " + string(v.Kind), Command: "isthmus apply -f FILE --diff --dry-run"}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	for _, p := range now.GetPeers() {
		v.Clusters = append(v.Clusters, p.GetCluster())
	}
	all, err := r.apps(&v1alpha1.AppsRequest{Most: mostNames, WithoutNamed: true})
	if err != nil {
		return nil, err
	}
	for _, a := range all.apps {
		v.Names = append(v.Names, show.Name(a.GetApp()))
	}
	query := r.URL.Query()
	for i := range formRows {
		at := func(name string) string {
			if values := query[name]; i < len(values) {
				return strings.TrimSpace(values[i])
			}
			return ""
		}
		v.Rows = append(v.Rows, builtRow{at("to"), at("cluster"), at("weight")})
	}
	if v.App == "" || !slices.ContainsFunc(v.Rows, func(b builtRow) bool { return b.Name != "" || v.Kind == catalog.KindAppExport && b.Cluster != "" }) {
		return shown, nil
	}
	object, err := build(r, v)
	if err != nil {
		return nil, err
	}
	if v.Wrong != "" {
		shown.Status = http.StatusBadRequest
		return shown, nil
	}
	v.YAML = object
	return shown, nil
}

// build is the YAML of the object; it says in Wrong what of the form is.
func build(r *request, v *builder) (string, error) {
	app, err := catalog.ParseApp(v.App)
	if err != nil {
		v.Wrong = err.Error()
		return "", nil
	}
	all, err := r.optionalObject(catalog.Key{Kind: v.Kind, Namespace: app.Namespace, Name: app.ID})
	if err != nil {
		return "", err
	}
	var object catalog.Object
	revision := ""
	if all != nil {
		object, revision, v.Added = all.Object, all.Revision, true
	}
	if v.Kind == catalog.KindAppExport {
		e := &catalog.AppExport{App: app}
		if was, ok := object.(*catalog.AppExport); ok {
			e.Allow = slices.Clone(was.Allow)
		}
		v.Wrong = allow(e, v.Rows)
		object = e
	} else {
		s := &catalog.AppEndpoints{App: app}
		if was, ok := object.(*catalog.AppEndpoints); ok {
			s.Endpoints, s.Actors = slices.Clone(was.Endpoints), was.Actors
		}
		v.Wrong = choose(s, v.Rows)
		object = s
	}
	if v.Wrong != "" {
		return "", nil
	}
	text := string(api.EncodeYAMLAt(object, revision))
	if _, mistakes := api.DecodeFile("", []byte(text), nil); len(mistakes) > 0 {
		v.Wrong = mistakes[0].Error()
	}
	return text, nil
}

// allow adds callers to an export, and says what of the form is wrong.
func allow(e *catalog.AppExport, rows []builtRow) (wrong string) {
	for _, b := range rows {
		if b.Name == "" && b.Cluster == "" {
			continue
		}
		one := catalog.Allow{Cluster: cmp.Or(b.Cluster, "*")}
		if b.Name != "" {
			var ok bool
			if one.Namespace, one.App, ok = strings.Cut(b.Name, "/"); !ok {
				return "caller " + strconv.Quote(b.Name) + ": want namespace/app-id, or namespace/* for all of a namespace"
			}
			if one.App == "*" {
				one.App = ""
			}
			if one.Namespace == "*" {
				one.Namespace = ""
			}
		}
		if !slices.Contains(e.Allow, one) {
			e.Allow = append(e.Allow, one)
		}
	}
	return ""
}

// choose adds callees to a selection, and says what of the form is wrong. Lines of one callee are its
// routes, which replace those that it had.
func choose(s *catalog.AppEndpoints, rows []builtRow) (wrong string) {
	fresh := map[catalog.App]bool{}
	for _, b := range rows {
		if b.Name == "" {
			continue
		}
		callee, err := catalog.ParseApp(b.Name)
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(s.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee })
		if i < 0 {
			i, s.Endpoints = len(s.Endpoints), append(s.Endpoints, catalog.Endpoint{App: callee})
		}
		if !fresh[callee] {
			fresh[callee], s.Endpoints[i].Routes = true, nil
		}
		if b.Cluster == "" {
			continue
		}
		weight := uint64(catalog.DefaultWeight)
		if b.Weight != "" {
			if weight, err = strconv.ParseUint(b.Weight, 10, 32); err != nil {
				return "weight " + strconv.Quote(b.Weight) + ": want a number"
			}
		}
		s.Endpoints[i].Routes = append(s.Endpoints[i].Routes, catalog.RouteSpec{Cluster: b.Cluster, Weight: uint32(weight)})
	}
	return ""
}

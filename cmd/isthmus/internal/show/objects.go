package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Object is one object as it stands in the store.
type Object struct {
	catalog.Object
	Revision string
	Stored   string // file:line, for stores that have it
}

// ObjectsOf reads the objects of an answer.
func ObjectsOf(m *v1alpha1.GetResponse) ([]Object, error) {
	var all []Object
	for _, o := range m.GetObjects() {
		key := catalog.Key{Kind: catalog.Kind(o.GetKey().GetKind()), Namespace: o.GetKey().GetNamespace(), Name: o.GetKey().GetName()}
		object, err := api.DecodeJSON(api.KeyPath(key), o.GetJson())
		if err != nil {
			return nil, fmt.Errorf("read %s from the answer: %w; is the service of another version than this isthmus?", key, err)
		}
		all = append(all, Object{object, o.GetRevision(), o.GetSource()})
	}
	return all, nil
}

// Objects writes objects. As YAML and JSON they have the revision that they stand at, so
// that they can be applied again unless somebody else has changed them; as JSON one that was asked for by name stands alone, others in a list.
func Objects(w io.Writer, f Format, all []Object, single bool) error {
	switch f {
	case YAML:
		return objectsYAML(w, all)
	case JSON:
		list := make([]json.RawMessage, len(all))
		for i, o := range all {
			list[i] = api.EncodeJSONAt(o.Object, o.Revision)
		}
		if single && len(list) == 1 {
			return Print(w, JSON, list[0])
		}
		return Print(w, JSON, list)
	default:
		return objectTables(w, all)
	}
}

func objectsYAML(w io.Writer, all []Object) error {
	for i, o := range all {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if _, err := w.Write(api.EncodeYAMLAt(o.Object, o.Revision)); err != nil {
			return err
		}
	}
	return nil
}

// objectTables writes a table for each kind.
func objectTables(w io.Writer, all []Object) error {
	first := true
	for _, kind := range catalog.Kinds() {
		var table [][]string
		for _, o := range all {
			if o.Key().Kind == kind {
				table = append(table, objectRow(o))
			}
		}
		if table == nil {
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		if err := rows(w, headings[kind], table); err != nil {
			return err
		}
	}
	return nil
}

var headings = map[catalog.Kind][]string{
	catalog.KindAppEndpoints: {"APPENDPOINTS", "CALLS", "REVISION", "SOURCE"},
	catalog.KindAppExport:    {"APPEXPORT", "ALLOWS", "REVISION", "SOURCE"},
	catalog.KindAppInstance:  {"APPINSTANCE", "APP", "ADDRESS", "ZONE", "CHECK", "REVISION", "SOURCE"},
	catalog.KindCluster:      {"CLUSTER", "GATEWAYS", "NETWORK", "STALE AFTER", "REVISION", "SOURCE"},
}

func objectRow(o Object) []string {
	switch spec := o.Object.(type) {
	case *catalog.AppEndpoints:
		var calls []string
		for i := range spec.Endpoints {
			calls = append(calls, relative(spec.Endpoints[i].App, spec.App.Namespace))
		}
		return []string{spec.App.String(), list(calls), o.Revision, o.Stored}
	case *catalog.AppExport:
		var allows []string
		for _, a := range spec.Allow {
			allows = append(allows, allowed(a))
		}
		return []string{spec.App.String(), list(allows), o.Revision, o.Stored}
	case *catalog.AppInstance:
		return []string{spec.Namespace + "/" + spec.Name, spec.App, spec.Address.String(), orDash(spec.Zone), checked(spec), o.Revision, o.Stored}
	case *catalog.Cluster:
		return []string{spec.Name, list(gatewaysOf(spec)), spec.Network, spec.StaleAfter.String(), o.Revision, o.Stored}
	}
	return nil
}

// gatewaysOf are a cluster's gateways; of one for a single app, also which.
func gatewaysOf(c *catalog.Cluster) []string {
	all := slices.Clone(c.Gateways)
	for _, g := range c.AppGateways {
		all = append(all, g.Address+" for "+g.App.String())
	}
	return all
}

// checked is a health check in a few words, such as "http :3500/v1.0/healthz every 2s".
func checked(i *catalog.AppInstance) string {
	c := i.Check
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s :%d%s every %s", c.Kind, c.Port, c.Path, c.Interval)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// relative is an app's name as seen from a namespace.
func relative(a catalog.App, namespace string) string {
	if a.Namespace == namespace {
		return a.ID
	}
	return a.String()
}

// allowed is who may call, as "cluster:namespace/app".
func allowed(a catalog.Allow) string {
	return orAny(a.Cluster) + ":" + orAny(a.Namespace) + "/" + orAny(a.App)
}

func orAny(pattern string) string {
	if pattern == "" {
		return "*"
	}
	return pattern
}

// list joins a few items, and counts the rest.
func list(items []string) string {
	const most = 4
	if len(items) == 0 {
		return "none"
	}
	if len(items) > most {
		return strings.Join(items[:most], ", ") + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, ", ")
}

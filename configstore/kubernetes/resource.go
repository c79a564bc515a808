package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// group is the API group of the resources.
var group, _, _ = strings.Cut(catalog.Version, "/")

// resource is one sort of custom resources, or one of them.
type resource struct {
	kind      catalog.Kind
	plural    string
	namespace string // of the one that is read; empty for all
	name      string
}

func resourceOf(kind catalog.Kind) resource {
	r := resource{kind: kind}
	if d := kind.Definition(); d != nil {
		r.plural = d.Plural
	}
	return r
}

// resourcesOf is what a scope has. The order is that of a Version.
func resourcesOf(scope configstore.Scope) []resource {
	if scope.All() {
		var all []resource
		for _, kind := range catalog.Kinds() {
			all = append(all, resourceOf(kind))
		}
		return all
	}
	own := resourceOf(catalog.KindAppEndpoints)
	own.namespace, own.name = scope.App.Namespace, scope.App.ID
	return []resource{own, resourceOf(catalog.KindCluster)}
}

// String is what kubectl and RBAC call it.
func (r resource) String() string { return r.plural + "." + group }

// path is that of the collection, in a namespace or in all.
func (r resource) path(namespace string) string {
	if namespace != "" {
		return "/apis/" + catalog.Version + "/namespaces/" + namespace + "/" + r.plural
	}
	return "/apis/" + catalog.Version + "/" + r.plural
}

// inKubernetes is the namespace and the name of an object there.
func inKubernetes(key catalog.Key) (namespace, name string) {
	if key.Kind != catalog.KindAppEndpoints {
		return key.Namespace, key.Name
	}
	return catalog.App{Namespace: key.Namespace, ID: key.Name}.InKubernetes()
}

// where is how refusals and errors name an object: as kubectl does.
func where(key catalog.Key) string {
	if key.Namespace == "" {
		return resourceOf(key.Kind).String() + " " + key.Name
	}
	namespace, name := inKubernetes(key)
	return resourceOf(key.Kind).String() + " " + namespace + "/" + name
}

// meta is what is needed of an object's metadata.
type meta struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	Generation      int64  `json:"generation"`
	ResourceVersion string `json:"resourceVersion"`
}

// revision is another when the spec is, or the object has been made anew.
func (m meta) revision() string {
	const enough = 12
	uid := strings.ReplaceAll(m.UID, "-", "")
	return strconv.FormatInt(m.Generation, 10) + "-" + uid[:min(enough, len(uid))]
}

// item is a custom resource, as far as it is needed.
type item struct {
	key        catalog.Key // as the resource is named; perhaps no name that an object can have
	meta       meta
	value      []byte // the object as JSON, without what is Kubernetes's own
	conditions []condition
}

func (i item) path() string { return api.KeyPath(i.key) }

// keyOf is the key of an item's path. Names that no object can have have no slash either.
func keyOf(path string) catalog.Key {
	parts := strings.Split(strings.TrimPrefix(path, api.KeyPrefix), "/")
	key := catalog.Key{Kind: catalog.Kind(parts[0]), Name: parts[len(parts)-1]}
	if len(parts) > 2 {
		key.Namespace = parts[1]
	}
	return key
}

func (i item) pair() configstore.Pair {
	return configstore.Pair{Path: i.path(), Value: i.value, Revision: i.meta.revision()}
}

// parse reads a custom resource. Fields that are not Kubernetes's own stay, also those
// that the object does not have: they are to be refused.
func (r resource) parse(raw []byte) (item, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return item{}, fmt.Errorf("a %s is not JSON: %w", r, err)
	}
	var i item
	if err := json.Unmarshal(fields["metadata"], &i.meta); err != nil {
		return item{}, fmt.Errorf("metadata of a %s: %w", r, err)
	}
	if i.meta.Name == "" {
		return item{}, errors.New("a " + r.String() + " has no name")
	}
	i.key = catalog.Key{Kind: r.kind, Namespace: i.meta.Namespace, Name: i.meta.Name}
	if r.kind == catalog.KindAppEndpoints {
		app := catalog.FromKubernetes(i.meta.Namespace, i.meta.Name)
		i.key.Namespace, i.key.Name = app.Namespace, app.ID
	}
	if s, ok := fields["status"]; ok {
		var status statusOf
		if json.Unmarshal(s, &status) == nil { // else it is as if there were none
			i.conditions = status.Conditions
		}
	}
	i.value = i.plain(fields)
	return i, nil
}

// plain is the object as other stores hold it.
func (i item) plain(fields map[string]json.RawMessage) []byte {
	b := append([]byte(`{"apiVersion":"`+catalog.Version+`","kind":"`), i.key.Kind...)
	b = append(b, `","metadata":{`...)
	if i.key.Namespace != "" {
		b = append(append(append(b, `"namespace":"`...), i.key.Namespace...), `",`...) // names need no escapes: the API server sees to that
	}
	b = append(append(append(b, `"name":"`...), i.key.Name...), `"}`...)
	for _, name := range sortedKeys(fields) {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
			continue
		}
		quoted, _ := json.Marshal(name) // a string can always be encoded
		b = append(append(append(append(b, ','), quoted...), ':'), fields[name]...)
	}
	return append(b, '}')
}

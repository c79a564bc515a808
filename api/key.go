package api

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// KeyPrefix is what the keys of all objects in a key-value store begin with.
const KeyPrefix = "isthmus/v1alpha1/"

// KeyPath is an object's key in a key-value store:
// isthmus/v1alpha1/<Kind>/<namespace>/<name>, with no namespace for a Cluster.
func KeyPath(k catalog.Key) string {
	if k.Kind.Namespaced() {
		return KeyPrefix + string(k.Kind) + "/" + k.Namespace + "/" + k.Name
	}
	return KeyPrefix + string(k.Kind) + "/" + k.Name
}

// ParseKeyPath reads what [KeyPath] writes, and refuses every other key.
func ParseKeyPath(path string) (catalog.Key, error) {
	rest, ok := strings.CutPrefix(path, KeyPrefix)
	if !ok {
		return catalog.Key{}, fmt.Errorf("key %q does not begin with %q; it is not an object of Isthmus", path, KeyPrefix)
	}
	parts := strings.Split(rest, "/")
	key := catalog.Key{Kind: catalog.Kind(parts[0])}
	if !knownKind(key.Kind) {
		return catalog.Key{}, fmt.Errorf("key %q has the unknown kind %q; want one of %s", path, parts[0], kindList())
	}
	switch {
	case key.Kind.Namespaced() && len(parts) == 3:
		key.Namespace, key.Name = parts[1], parts[2]
	case !key.Kind.Namespaced() && len(parts) == 2:
		key.Name = parts[1]
	case key.Kind.Namespaced():
		return catalog.Key{}, fmt.Errorf("key %q: want %s%s/<namespace>/<name>", path, KeyPrefix, key.Kind)
	default:
		return catalog.Key{}, fmt.Errorf("key %q: want %s%s/<name>", path, KeyPrefix, key.Kind)
	}
	if err := CheckKey(key); err != nil {
		return catalog.Key{}, fmt.Errorf("key %q: %w", path, err)
	}
	return key, nil
}

// CheckKey tells whether a key's kind is known and its names can be carried by
// daprd, DNS and SNI.
func CheckKey(k catalog.Key) error {
	switch {
	case !knownKind(k.Kind):
		return fmt.Errorf("unknown kind %q; want one of %s", k.Kind, kindList())
	case k.Kind == catalog.KindAppInstance, k.Kind == catalog.KindActorType:
		return cmp.Or(catalog.CheckNamespace(k.Namespace), catalog.CheckInstance(k.Name))
	case k.Kind == catalog.KindAppEndpoints:
		return catalog.App{Namespace: k.Namespace, ID: k.Name}.CheckSelection()
	case k.Kind.Namespaced():
		return catalog.App{Namespace: k.Namespace, ID: k.Name}.CheckHost()
	case k.Namespace != "":
		return fmt.Errorf("a %s has no namespace, but %q is given", k.Kind, k.Namespace)
	default:
		return catalog.CheckCluster(k.Name)
	}
}

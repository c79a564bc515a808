package dapr

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// headPath is the path of the key that is written with every batch. Everything whose last
// part begins with "_" is Isthmus's own and no object.
const (
	ownMark      = api.KeyPrefix + "_"
	headPath     = ownMark + "head"
	indexPath    = ownMark + "index/" // and a kind
	identityPath = ownMark + "identity"
)

var (
	allowedPrefix = regexp.MustCompile(`^[A-Za-z0-9._:/{}-]{0,200}$`)
	indexedKinds  = kindNames()
)

func kindNames() []string {
	var all []string
	for _, kind := range catalog.Kinds() {
		all = append(all, string(kind))
	}
	return all
}

// names is how the keys of one store are called.
type names struct {
	prefix string
	scope  configstore.Scope
}

func (n names) key(path string) string { return n.prefix + path }

func (n names) keys(paths []string) []string {
	keys := make([]string, len(paths))
	for i, path := range paths {
		keys[i] = n.key(path)
	}
	return keys
}

// path is that of a key which is one of ours, and in the scope.
func (n names) path(key string) (path string, ok bool) {
	path, ok = strings.CutPrefix(key, n.prefix)
	return path, ok && n.has(path)
}

// named is [names.path] where the keys were asked for by name: the identity is among them.
func (n names) named(key string) (path string, ok bool) {
	if key == n.key(identityPath) {
		return identityPath, true
	}
	return n.path(key)
}

// has tells whether a path is to be read.
func (n names) has(path string) bool {
	if !strings.HasPrefix(path, api.KeyPrefix) || strings.HasPrefix(path, ownMark) {
		return false
	}
	if n.scope.All() {
		return true
	}
	return path == n.own() || strings.HasPrefix(path, clusterPaths)
}

// clusterPaths is what the paths of all clusters begin with.
const clusterPaths = api.KeyPrefix + string(catalog.KindCluster) + "/"

// own is the path of the scope's own selection.
func (n names) own() string { return api.KeyPath(n.scope.Selection()) }

// kinds are those whose objects are read by an index.
func (n names) kinds() []string {
	if n.scope.All() {
		return indexedKinds
	}
	return []string{string(catalog.KindCluster)}
}

// kindOf is the index that a path belongs to, and its name there.
func kindOf(path string) (kind, member string, ok bool) {
	rest, ok := strings.CutPrefix(path, api.KeyPrefix)
	kind, _, cut := strings.Cut(rest, "/")
	return kind, rest, ok && cut && slices.Contains(indexedKinds, kind)
}

// held is what a store has under one key.
type held struct {
	value   string
	version string // that of Dapr's interface; empty where there is none
}

// revision changes when the object does, also when somebody changes the value by hand and
// leaves the version.
func (h held) revision() string {
	sum := md5.Sum([]byte(h.value)) // tells texts apart, and protects nothing
	if h.version == "" {
		return hex.EncodeToString(sum[:6])
	}
	return fmt.Sprintf("%.40s.%s", h.version, hex.EncodeToString(sum[:6]))
}

func (h held) pair(path string) configstore.Pair {
	return configstore.Pair{Path: path, Value: []byte(h.value), Revision: h.revision()}
}

package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// GuardMode says what happens to calls of an app by callers that nothing lets in.
type GuardMode uint8

// The modes of a guard.
const (
	GuardObserve GuardMode = iota // they are let in, counted and logged (the default)
	GuardOff                      // nobody looks at them
	GuardEnforce                  // they are refused
)

var guardModes = [...]string{"observe", "off", "enforce"}

// String is the mode as configurations write it.
func (m GuardMode) String() string { return guardModes[m] }

// ParseGuardMode reads a mode; an empty text is the default.
func ParseGuardMode(s string) (GuardMode, error) {
	if i := slices.Index(guardModes[:], cmp.Or(s, guardModes[GuardObserve])); i >= 0 {
		return GuardMode(i), nil
	}
	return 0, fmt.Errorf("guard %q: want off, observe or enforce", s)
}

// Principal is the caller by its certificate: an app, and the trust domain that vouches for it.
// Clusters that share a trust domain share its apps: of two with one name, the certificate does not
// tell which one calls.
type Principal struct {
	Domain string // trust domain
	App    App
}

// String is "namespace/app-id of trust domain".
func (p Principal) String() string { return p.App.String() + " of trust domain " + p.Domain }

// Access is who may call one app: immutable, complete, with a revision. Callers of another
// namespace of this cluster are in it only where the app's AppExport consents.
type Access struct {
	Revision   uint64
	Mode       GuardMode      // of the cluster
	Declared   *AppSet        // apps of this cluster whose selection holds the app with a route here
	Undeclared *AppSet        // apps that run here without a selection, where the default lets them call
	Remote     *RemoteCallers // apps of other clusters, by the app's AppExport
}

// Judge tells whether a caller may call the app, and the cluster that it counts as one of: by what
// lets it in or, where nothing does, by its trust domain. The cluster is [LocalCluster], another
// one, or empty where the certificate does not tell. own says that the caller's trust domain is
// that of this cluster's apps. It takes no lock and allocates nothing.
func (a *Access) Judge(own bool, caller Principal) (cluster string, in bool) {
	if own && (a.Declared.Has(caller.App) || a.Undeclared.Has(caller.App)) {
		return LocalCluster, true
	}
	if cluster, in = a.Remote.admits(caller); in {
		return cluster, true
	}
	if own {
		return LocalCluster, false
	}
	return a.Remote.clusterOf(caller.Domain), false
}

// Home is the cluster whose apps have a trust domain: [LocalCluster], another one, or empty where
// that is not certain. A cluster whose Cluster object names no trust domain may have any. own is that
// of [Access.Judge].
func (a *Access) Home(own bool, domain string) (home string) {
	if own {
		home = LocalCluster
	}
	for _, c := range a.Remote.All() {
		switch {
		case c.Domain == "", c.Domain == domain && home != "" && home != c.Cluster:
			return ""
		case c.Domain == domain:
			home = c.Cluster
		}
	}
	return home
}

// Same tells whether both let in the same callers, by the same mode.
func (a *Access) Same(b *Access) bool {
	return a.Mode == b.Mode && a.Declared.Same(b.Declared) && a.Undeclared.Same(b.Undeclared) && a.Remote.Same(b.Remote)
}

// AppSet is an immutable set of apps. Nil is empty.
type AppSet struct {
	apps Table[struct{}]
	sum  [4]uint64 // of the apps' hashes; so a change costs no look at the other apps
}

// Digest is the same for the same apps, in every process; nil for an empty set.
func (s *AppSet) Digest() []byte {
	if s.Len() == 0 {
		return nil
	}
	b := make([]byte, 0, sha256.Size)
	for _, lane := range s.sum {
		b = binary.BigEndian.AppendUint64(b, lane)
	}
	return b
}

// count adds an app to the sum, or takes it out.
func (s *AppSet) count(app App, remove bool) {
	hash := sha256.Sum256([]byte(app.Namespace + "\n" + app.ID)) // no name has a line break
	for i := range s.sum {
		if lane := binary.BigEndian.Uint64(hash[8*i:]); remove {
			s.sum[i] -= lane
		} else {
			s.sum[i] += lane
		}
	}
}

// Has tells whether an app is in the set.
func (s *AppSet) Has(app App) bool {
	if s == nil {
		return false
	}
	_, ok := s.apps.Get(app)
	return ok
}

// Len is the number of apps.
func (s *AppSet) Len() int {
	if s == nil {
		return 0
	}
	return s.apps.Len()
}

// All yields the apps in no particular order.
func (s *AppSet) All() iter.Seq[App] {
	return func(yield func(App) bool) {
		if s == nil {
			return
		}
		for app := range s.apps.All() {
			if !yield(app) {
				return
			}
		}
	}
}

// With returns a set with the edits made; an app that is in both lists is put. It is the same set
// where that changes nothing.
func (s *AppSet) With(put, removed []App) *AppSet {
	next := &AppSet{}
	if s != nil {
		next.apps, next.sum = s.apps, s.sum
	}
	var edits []Edit[struct{}]
	done := make(map[App]bool, len(put)+len(removed))
	edit := func(app App, remove bool) {
		if !done[app] && s.Has(app) == remove {
			edits = append(edits, Edit[struct{}]{App: app, Remove: remove})
			next.count(app, remove)
		}
		done[app] = true
	}
	for _, app := range put {
		edit(app, false)
	}
	for _, app := range removed {
		edit(app, true)
	}
	if len(edits) == 0 {
		return s
	}
	next.apps = next.apps.With(edits...)
	return next
}

// Diff returns what turns old into s.
func (s *AppSet) Diff(old *AppSet) (put, removed []App) {
	if s == old {
		return nil, nil
	}
	var is, was Table[struct{}]
	if s != nil {
		is = s.apps
	}
	if old != nil {
		was = old.apps
	}
	for e := range is.Diff(&was, func(struct{}, struct{}) bool { return true }) {
		if e.Remove {
			removed = append(removed, e.App)
		} else {
			put = append(put, e.App)
		}
	}
	return put, removed
}

// Same tells whether both have the same apps.
func (s *AppSet) Same(old *AppSet) bool {
	if s == old {
		return true
	}
	if s.Len() != old.Len() {
		return false
	}
	put, removed := s.Diff(old)
	return len(put)+len(removed) == 0
}

// RemoteCaller lets in apps of another cluster. An empty field, like "*" in an AppExport, is any.
type RemoteCaller struct {
	Cluster   string // whose Cluster object, and whose entry in the AppExport, it comes from
	Domain    string // trust domain of the cluster's apps
	Namespace string
	App       string
}

// Compare orders by cluster, then by domain, namespace and app.
func (c RemoteCaller) Compare(d RemoteCaller) int {
	return cmp.Or(cmp.Compare(c.Cluster, d.Cluster), cmp.Compare(c.Domain, d.Domain),
		cmp.Compare(c.Namespace, d.Namespace), cmp.Compare(c.App, d.App))
}

// RemoteCallers are the callers of other clusters that an app lets in. They are immutable; nil
// is nobody.
type RemoteCallers struct {
	all    []RemoteCaller       // sorted, each once
	index  map[Principal]string // the cluster; empty for several
	shapes [8]bool              // which of the three fields of index's keys are empty, in all of them
}

// NewRemoteCallers makes the set of some callers, in any order. It keeps the slice.
func NewRemoteCallers(all []RemoteCaller) *RemoteCallers {
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, RemoteCaller.Compare)
	r := &RemoteCallers{all: slices.Compact(all), index: make(map[Principal]string, len(all))}
	for _, c := range r.all {
		key, cluster := Principal{c.Domain, App{c.Namespace, c.App}}, c.Cluster
		if other, there := r.index[key]; there && other != cluster {
			cluster = ""
		}
		r.index[key] = cluster
		shape := 0
		for i, field := range [...]string{c.Domain, c.Namespace, c.App} {
			if field == "" {
				shape |= 1 << i
			}
		}
		r.shapes[shape] = true
	}
	return r
}

// All are the callers, sorted. They must not be changed.
func (r *RemoteCallers) All() []RemoteCaller {
	if r == nil {
		return nil
	}
	return r.all
}

// Same tells whether both let in the same callers.
func (r *RemoteCallers) Same(o *RemoteCallers) bool {
	return r == o || slices.Equal(r.All(), o.All())
}

// admits tells whether a caller is among them, and of which cluster; empty where it may be of several.
func (r *RemoteCallers) admits(caller Principal) (cluster string, in bool) {
	if r == nil {
		return "", false
	}
	for shape, used := range r.shapes {
		if !used {
			continue
		}
		key := caller
		if shape&1 != 0 {
			key.Domain = ""
		}
		if shape&2 != 0 {
			key.App.Namespace = ""
		}
		if shape&4 != 0 {
			key.App.ID = ""
		}
		switch of, ok := r.index[key]; {
		case ok && in && of != cluster:
			return "", true
		case ok:
			cluster, in = of, true
		}
	}
	return cluster, in
}

// clusterOf is the only cluster with a trust domain; empty where there are several or none.
func (r *RemoteCallers) clusterOf(domain string) (found string) {
	for _, c := range r.All() {
		if c.Domain == domain && found != c.Cluster {
			if found != "" {
				return ""
			}
			found = c.Cluster
		}
	}
	return found
}

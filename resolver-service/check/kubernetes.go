package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/identity"
)

// Definitions is how the custom resources of the API server differ from those that the service
// knows.
type Definitions struct {
	Missing []string // resources
	Lacking []string // fields that the API server does not know, and drops
	Unknown []string // fields that the service does not know
	Err     error
}

// definitions finds custom resources that are not there, or of another release.
func definitions(f *Facts) (all []Result) {
	d := f.Definitions
	add := func(level Level, found, fix string, names []string) {
		if len(names) > 0 {
			all = append(all, Result{Level: level, Kind: ofService, Name: f.Status.GetCluster(), Found: found + some(names), Fix: fix})
		}
	}
	const upgrade = "install the chart isthmus-crds of the service's release"
	switch {
	case d == nil:
		return nil
	case d.Err != nil:
		return f.service(Warn, fmt.Sprintf("can't compare the definitions of the objects: %v", d.Err), "see that the API server is reached from the service")
	}
	add(Fail, "the API server has no definition of ", upgrade, d.Missing)
	add(Warn, "the definitions are older than the service; the API server drops ", upgrade, d.Lacking)
	add(Warn, "the definitions are newer than the service, which refuses objects with ", "upgrade the service", d.Unknown)
	return all
}

// someNames is how many names a result has.
const someNames = 6

func some(names []string) string {
	if more := len(names) - someNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:someNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// ownRoots finds roots that are not those of this cluster's authority, or not the newest.
func ownRoots(ctx context.Context, f *Facts) (all []Result) {
	var own, peers []string
	for _, t := range f.Status.GetTrust() {
		switch t.GetUse() {
		case identity.OwnRoot:
			own = append(own, t.GetFingerprint())
		case identity.PeerRoot:
			peers = append(peers, t.GetFingerprint())
		}
	}
	if f.Bundle != nil && !f.lacks(trustBundleRole) && len(own) > 0 {
		name, roots, err := f.Bundle(ctx)
		switch {
		case err != nil:
			all = append(all, f.service(Warn, fmt.Sprintf("the roots are not followed now, those of before count: %v", err), "")...)
		case !same(own, roots):
			all = append(all, f.service(Fail, fmt.Sprintf("the service uses other roots than %s has now: %s, and not %s", name, short(own), short(roots)),
				"wait some seconds if Sentry has just changed them; otherwise see the service's log")...)
		}
	}
	for _, t := range f.Status.GetTrust() {
		root := t.GetFingerprint()
		if t.GetUse() != identity.OwnRoot || len(f.Vouching) == 0 || slices.Contains(f.Vouching, root) || slices.Contains(peers, root) {
			continue
		}
		all = append(all, f.service(Warn, fmt.Sprintf("%s, SHA-256 %s, is a root of this cluster beside the one of the service's certificate: who has its key can be any app and operator here", t.GetSubject(), short([]string{root})),
			"if it is another cluster's, name it in spec.trust.roots of its Cluster object; if the root is being changed, this ends with the change")...)
	}
	return all
}

func same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// short are the beginnings of fingerprints, as isthmus trust shows them.
func short(fingerprints []string) string {
	all := make([]string, len(fingerprints))
	for i, f := range fingerprints {
		all[i] = f[:min(len(f), 16)] + "…"
	}
	return strings.Join(all, ", ")
}

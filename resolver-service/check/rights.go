package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// Lack is a role of which an account lacks rights.
type Lack struct {
	Role   string
	Rights []apiserver.Right
}

// The roles of deploy/kubernetes whose lack other checks would report, too.
const (
	readerRole      = "isthmus-reader"
	statusRole      = "isthmus-status"
	writerRole      = "isthmus-writer"
	identityRole    = "isthmus-identity"
	instancesRole   = "isthmus-instances"
	podsRole        = "isthmus-instances-pods"
	translateRole   = "isthmus-translate"
	reviewerRole    = "isthmus-reviewer"
	clientsRole     = "extension-apiserver-authentication-reader"
	trustBundleRole = "isthmus-trust-bundle"
)

// lacks tells whether the account lacks something of a role; then its lack is the finding, and not
// what comes of it.
func (f *Facts) lacks(roles ...string) bool {
	return slices.ContainsFunc(f.Lacks, func(l Lack) bool { return slices.Contains(roles, l.Role) })
}

// rights finds what the service's account may not do in Kubernetes: one result for a role's verb.
func rights(f *Facts) (all []Result) {
	if f.LacksErr != nil {
		return f.service(Warn, fmt.Sprintf("can't ask the API server what the service's account may do: %v", f.LacksErr), "see that the API server is reached from the service")
	}
	for _, l := range f.Lacks {
		level, still := Fail, "; what was read before still counts, until the service restarts"
		switch l.Role {
		case statusRole:
			level, still = Warn, "; objects don't show what became of them"
		case writerRole:
			level, still = Warn, "; isthmus apply and delete fail, in part"
		case identityRole:
			level, still = Warn, "; peers can't tell this cluster from another of its name"
		case reviewerRole, clientsRole:
			still = "; operators with a kubeconfig are refused"
		}
		verbs := map[string][]apiserver.Right{}
		var order []string
		for _, r := range l.Rights {
			if verbs[r.Verb] == nil {
				order = append(order, r.Verb)
			}
			verbs[r.Verb] = append(verbs[r.Verb], r)
		}
		for _, verb := range order {
			all = append(all, Result{Level: level, Kind: ofRole, Name: strings.TrimSpace(l.Role + " " + verb),
				Found: "the service's account may not " + apiserver.List(verbs[verb]) + still,
				Fix:   "bind the role " + l.Role + " of the chart to it, as the chart made it"})
		}
	}
	return all
}

package authz

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// TestEveryMethodOfOperatorsTakesAVerb, so that a new one is not open, or missing, on Kubernetes.
func TestEveryMethodOfOperatorsTakesAVerb(t *testing.T) {
	for method, kinds := range access[AtResolver] {
		if known := []string{mayRead, mayWrite, mayLink, mayTap}; slices.Contains(kinds, Operator) && method != v1alpha1.Resolver_Watch_FullMethodName && !slices.Contains(known, verbs[method]) {
			t.Errorf("%s takes the verb %q, want one of %v", method, verbs[method], known)
		}
	}
}

// TestAGuestIsInvitedByWhoMayWrite, since the invitation says whose calls it takes.
func TestAGuestIsInvitedByWhoMayWrite(t *testing.T) {
	for verb, req := range map[string]*v1alpha1.InviteRequest{mayLink: {}, mayWrite: {Guest: &v1alpha1.GuestOffer{}}} {
		if got, err := verbOf(v1alpha1.Link_Invite_FullMethodName, req); err != nil || got != verb {
			t.Errorf("it takes %s, %v; want %s", got, err, verb)
		}
	}
}

package show

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// policiesLine says how the policies are that a service keeps; empty if it keeps none.
func policiesLine(p *v1alpha1.PoliciesStatus) string {
	switch {
	case p == nil:
		return ""
	case p.GetLeads():
		line := fmt.Sprintf("%d kept here", p.GetObjects())
		if n := p.GetPending(); n > 0 {
			line += fmt.Sprintf(", %d to be written", n)
		}
		return line
	case p.GetHolder() == "":
		return "kept by no replica yet"
	}
	return "kept by " + p.GetHolder()
}

// addPolicies adds what stands in the way of policies.
func (all *problems) addPolicies(p *v1alpha1.PoliciesStatus) {
	if p.GetError() != "" {
		all.add("policies", "", p.GetError())
	}
	for _, left := range p.GetLeft() {
		all.add("policies", "", left)
	}
}

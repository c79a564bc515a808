package show

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestAStatusShowsPolicies(t *testing.T) {
	for _, c := range []struct {
		status *v1alpha1.PoliciesStatus
		want   []string
	}{
		{&v1alpha1.PoliciesStatus{Leads: true, Objects: 7}, []string{"HEALTHY", "policies    7 kept here\n"}},
		{&v1alpha1.PoliciesStatus{Leads: true, Objects: 7, Pending: 2, Error: "no way", Left: []string{"theirs"}}, []string{"UNHEALTHY", "policies    7 kept here, 2 to be written\n", "\n  policies: no way\n", "\n  policies: theirs\n"}},
		{&v1alpha1.PoliciesStatus{Holder: "west-1"}, []string{"policies    kept by west-1\n"}},
		{&v1alpha1.PoliciesStatus{}, []string{"policies    kept by no replica yet\n"}},
	} {
		var b strings.Builder
		s := &v1alpha1.StatusResponse{Cluster: "west", Store: &v1alpha1.StoreStatus{Name: "embedded", Ready: true}, Policies: c.status}
		if err := Status(&b, s, false, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	}
}

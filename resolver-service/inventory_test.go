package resolverservice

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

func TestSidecarsAreAskedForByPage(t *testing.T) {
	west := start(t, configOf(t, "west", nil), nil)
	for _, app := range []catalog.App{checkout, orders, orders} {
		west.sidecar(app, fmt.Sprint("10.0.0.1:", 50000+len(west.sidecarsOf(&v1alpha1.SidecarsRequest{}, nil))))
	}
	var first, second, third uint32
	page := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1}, &first)
	next := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1, After: page[0].GetPosition()}, &second)
	last := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1, After: next[0].GetPosition()}, &third)
	if len(page) != 1 || len(next) != 1 || len(last) != 0 || first != 2 || second != 2 || third != 2 || page[0].GetAddress() != "10.0.0.1:50001" || next[0].GetAddress() != "10.0.0.1:50002" {
		t.Errorf("%v of %d, then %v of %d, then %v of %d", page, first, next, second, last, third)
	}
	stream, err := v1alpha1.NewInventoryClient(west.connect(identity.CLIApp(""))).Sidecars(t.Context(), &v1alpha1.SidecarsRequest{After: "nowhere"})
	if err := all(stream, err, func(*v1alpha1.SidecarsResponse) {}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("after what is no position: %v", err)
	}
}

// sidecarsOf asks for sidecars, and for how many there are.
func (r *running) sidecarsOf(req *v1alpha1.SidecarsRequest, matched *uint32) (page []*v1alpha1.SidecarState) {
	r.t.Helper()
	stream, err := v1alpha1.NewInventoryClient(r.connect(identity.CLIApp(""))).Sidecars(r.t.Context(), req)
	err = all(stream, err, func(m *v1alpha1.SidecarsResponse) {
		page = append(page, m.GetSidecars()...)
		if matched != nil {
			*matched += m.GetMatched()
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return page
}

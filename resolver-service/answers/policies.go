package answers

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
)

// Policies writes policies for the platform.
func (v *Inventory) Policies(req *v1alpha1.PoliciesRequest, to grpc.ServerStreamingServer[v1alpha1.PoliciesResponse]) error {
	kind, err := policies.ParseKind(req.GetKind())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	writer := v.Writer()
	if writer.Sharing, err = v.Topology.Inventory().AccountsOf(to.Context()); err != nil {
		return err
	}
	apps, err := v.Topology.Inventory().Apps(to.Context())
	if err != nil {
		return err
	}
	filter := wants(req.GetApp().GetNamespace(), req.GetApp().GetId())
	apps = slices.DeleteFunc(apps, func(app catalog.App) bool { return !filter(app) })
	return sendParts(to, apps, perMessage, func(some []catalog.App) (*v1alpha1.PoliciesResponse, error) {
		fences, err := v.Topology.Inventory().Fences(to.Context(), some)
		m := &v1alpha1.PoliciesResponse{}
		for i := range fences {
			objects, notes := writer.Write(kind, &fences[i])
			p := &v1alpha1.AppPolicy{App: wire.App(fences[i].App), Notes: notes}
			for i := range objects {
				p.Objects = append(p.Objects, objects[i].JSON())
			}
			m.Policies = append(m.Policies, p)
		}
		return m, err
	})
}

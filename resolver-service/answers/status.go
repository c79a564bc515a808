package answers

import (
	"context"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// Status is the service Status.
type Status struct {
	v1alpha1.UnimplementedStatusServer
	Now   func() *v1alpha1.StatusResponse
	Facts func(context.Context, *v1alpha1.StatusResponse, Limit) (*check.Facts, error)
	Files []SupportFile
}

// Status tells how the service is.
func (s Status) Status(context.Context, *v1alpha1.StatusRequest) (*v1alpha1.StatusResponse, error) {
	return s.Now(), nil
}

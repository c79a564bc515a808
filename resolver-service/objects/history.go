package objects

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// mostVersions bounds the versions in one answer.
const mostVersions = 1000

// History returns the versions of an object, if the store keeps them.
func (s *Server) History(ctx context.Context, req *v1alpha1.HistoryRequest) (*v1alpha1.HistoryResponse, error) {
	key := wire.KeyOf(req.GetKey())
	if err := api.CheckKey(key); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %v", key, err)
	}
	historian, ok := s.store.(configstore.Historian)
	if !ok {
		return nil, status.Errorf(codes.FailedPrecondition,
			"store %s keeps no history; where your objects come from a repository, that has it", s.cfg.Store)
	}
	most := mostVersions
	if n := req.GetMost(); n > 0 && n < mostVersions {
		most = int(n)
	}
	past, err := historian.History(ctx, key, most)
	if err != nil {
		return nil, s.explain(err)
	}
	answer := &v1alpha1.HistoryResponse{}
	for i := range past {
		answer.Versions = append(answer.Versions, pastToWire(&past[i]))
	}
	return answer, nil
}

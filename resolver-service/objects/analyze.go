package objects

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// mostFindings bounds the findings of an answer.
const mostFindings = 1000

// Analyze finds likely mistakes in objects that are right by themselves.
func (s *Server) Analyze(ctx context.Context, req *v1alpha1.AnalyzeRequest) (*v1alpha1.AnalyzeResponse, error) {
	var sent []*v1alpha1.ApplyObject
	for _, text := range req.GetObjects() {
		sent = append(sent, &v1alpha1.ApplyObject{Json: text})
	}
	writes, err := s.decode(sent)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	objects := objectsOf(writes)
	var run func() []analysis.Finding
	err = s.topology.Inspect(ctx, s.feed.changeOf(writes), func(facts topology.Facts) {
		if len(writes) == 0 {
			objects = slices.Collect(facts.Objects())
		}
		run = analysis.Run(facts, s.cfg.Service, slices.Values(objects))
	})
	if err != nil {
		return nil, s.untried(err)
	}
	findings := run()
	answer := &v1alpha1.AnalyzeResponse{Objects: uint32(len(objects))}
	for i := range findings[:min(len(findings), mostFindings)] {
		answer.Findings = append(answer.Findings, findingToWire(&findings[i]))
	}
	answer.LeftOut = uint32(len(findings) - len(answer.Findings))
	return answer, nil
}

// warn adds to an answer the warnings among findings. Notes are left to isthmus analyze: what is
// written may well come before what it names.
func warn(answer *v1alpha1.ApplyResponse, findings []analysis.Finding) {
	left := 0
	for i := range findings {
		switch f := &findings[i]; {
		case !f.Warning:
		case len(answer.Warnings) >= mostWarnings:
			left++
		default:
			answer.Warnings = append(answer.Warnings, f.String())
		}
	}
	if left > 0 {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("%d more; isthmus analyze lists them", left))
	}
}

func findingToWire(f *analysis.Finding) *v1alpha1.Finding {
	w := &v1alpha1.Finding{Check: f.Check, Level: "note", Key: wire.Key(f.Key), Path: f.Path, What: f.What, Fix: f.Fix, Source: f.Source.String()}
	if f.Warning {
		w.Level = "warning"
	}
	return w
}

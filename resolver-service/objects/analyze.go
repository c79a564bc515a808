package objects

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/analysis"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// mostFindings bounds the findings of an answer.
const mostFindings = 1000

// Analyze finds what is most likely a mistake in objects that are right by themselves.
func (s *Server) Analyze(ctx context.Context, req *v1alpha1.AnalyzeRequest) (*v1alpha1.AnalyzeResponse, error) {
	var sent []*v1alpha1.ApplyObject
	for _, text := range req.GetObjects() {
		sent = append(sent, &v1alpha1.ApplyObject{Json: text})
	}
	writes, err := s.decode(sent)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	findings, objects, err := s.analyze(ctx, changeOf(writes), writes)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.AnalyzeResponse{Objects: uint32(objects)}
	for i := range findings[:min(len(findings), mostFindings)] {
		answer.Findings = append(answer.Findings, findingToWire(&findings[i]))
	}
	answer.LeftOut = uint32(len(findings) - len(answer.Findings))
	return answer, nil
}

// analyze looks at the written objects as if a change had been made, or at all objects if there
// are none, and tells at how many.
func (s *Server) analyze(ctx context.Context, c topology.ObjectChange, writes []configstore.Write) (found []analysis.Finding, objects int, err error) {
	finish := func() []analysis.Finding { return nil }
	err = s.topology.Inspect(ctx, c, func(facts topology.Facts) {
		finish = analysis.Run(facts, s.listens, func(yield func(catalog.Object) bool) {
			for _, w := range writes {
				if w.Object == nil {
					continue
				}
				if objects++; !yield(w.Object) {
					return
				}
			}
			if len(writes) > 0 {
				return
			}
			for object := range facts.Objects() {
				if objects++; !yield(object) {
					return
				}
			}
		})
	})
	if err != nil {
		return nil, 0, s.untried(err)
	}
	return finish(), objects, nil
}

func (s *Server) listens(a netip.AddrPort) bool { return s.cfg.Listens != nil && s.cfg.Listens(a) }

// warn adds to an answer the warnings of analyze about what is written. Notes are left to
// isthmus analyze: what is written may well come before what it names.
func (s *Server) warn(ctx context.Context, c topology.ObjectChange, writes []configstore.Write, answer *v1alpha1.ApplyResponse) error {
	if !slices.ContainsFunc(writes, func(w configstore.Write) bool { return w.Object != nil }) {
		return nil
	}
	findings, _, err := s.analyze(ctx, c, writes)
	if err != nil {
		return err
	}
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
	return nil
}

func findingToWire(f *analysis.Finding) *v1alpha1.Finding {
	w := &v1alpha1.Finding{Check: f.Check, Level: "note", Key: keyToWire(f.Key), Path: f.Path, What: f.What, Fix: f.Fix}
	if f.Warning {
		w.Level = "warning"
	}
	if f.Source.File != "" {
		w.Source = fmt.Sprintf("%s:%d", f.Source.File, f.Source.Line)
	}
	return w
}

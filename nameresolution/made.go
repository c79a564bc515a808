package nameresolution

import (
	"strings"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Made counts calls of this sidecar to an app in one cluster since they were counted last.
type Made struct {
	App     catalog.App
	Cluster string // "" for calls that found nothing connected
	Fine    uint64 // answered in time
	Failed  uint64
	Slow    uint64 // answered too late, or given up without an answer
	Waiting uint64 // under way, while none was answered for too long
	Code    string // gRPC's, of the last one that failed
	Why     string // of the last one that found nothing connected
}

// maxMade is how many apps one report of calls has, as services take them.
const maxMade = 100

// madeReport is the message about calls that did not all end well.
func madeReport(all []Made) *pb.CallReport {
	m := &pb.CallReport{}
	for _, c := range all[:min(len(all), maxMade)] {
		m.Made = append(m.Made, &pb.MadeCalls{
			Callee: wire.App(c.App), Cluster: c.Cluster, Fine: c.Fine, Failed: c.Failed, Slow: c.Slow, Waiting: c.Waiting, Code: c.Code,
			Why: strings.ToValidUTF8(c.Why[:min(len(c.Why), maxWhy)], "?"),
		})
	}
	return m
}

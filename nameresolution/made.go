package nameresolution

import (
	"strings"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// Made counts calls of this sidecar to an app in one cluster since it started.
type Made struct {
	App       catalog.App
	Cluster   string // "" for calls that found nothing connected
	Counts    traffic.Counts
	Exemplars traffic.Exemplars
	UnderWay  uint64
	Waiting   uint64 // under way, while none was answered for too long
	Code      string // of the last one that failed: gRPC's, or HTTP and a number
	Why       string // of the last one that found nothing connected
}

// maxMade is how many entries one report of calls has, as services take them.
const maxMade = 100

// madeKey names an entry.
type madeKey struct {
	app     catalog.App
	cluster string
}

// told is what the service knows of an entry.
type told struct {
	counts    traffic.Counts
	exemplars traffic.Exemplars
	underWay  uint64
	waiting   uint64
}

// madeReport is the message about the calls that the service does not know of, up to maxMade entries,
// and what it then knows. The rest is left.
func madeReport(all []Made, known map[madeKey]*told) (m *pb.CallReport, then map[madeKey]*told, left []Made) {
	m, then = &pb.CallReport{}, map[madeKey]*told{}
	for i := range all {
		if len(m.Made) == maxMade {
			return m, then, all[i:]
		}
		c := &all[i]
		before := known[madeKey{c.App, c.Cluster}]
		if before == nil {
			before = &told{}
		}
		news := c.Counts.Since(&before.counts)
		e := &pb.MadeCalls{Traffic: news.Wire(), UnderWay: c.UnderWay, Waiting: c.Waiting}
		if e.Traffic == nil && c.UnderWay == before.underWay && c.Waiting == 0 && before.waiting == 0 {
			continue
		}
		if e.Traffic != nil {
			e.Traffic.Exemplars = c.Exemplars.Since(&before.exemplars)
		}
		e.Callee, e.Cluster = wire.App(c.App), c.Cluster
		if news.Calls() > news.Good() {
			e.Code = c.Code
			if c.Cluster == "" {
				e.Why = strings.ToValidUTF8(c.Why[:min(len(c.Why), maxWhy)], "?")
			}
		}
		m.Made = append(m.Made, e)
		then[madeKey{c.App, c.Cluster}] = &told{c.Counts, c.Exemplars, c.UnderWay, c.Waiting}
	}
	return m, then, nil
}

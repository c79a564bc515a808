package callhealth

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// slowKey is a callee that does not answer in time.
type slowKey struct {
	callee  catalog.App
	cluster string
}

// slowCallee sums up the ways to it.
type slowCallee struct {
	tally
	lately      tally
	waiting     uint64
	since, last time.Time
	callers     []string
}

func (s *slowCallee) add(w *seen) {
	s.tally.add(w.tally)
	s.lately.add(w.lately)
	s.waiting += w.waiting
	if s.since.IsZero() || w.since.Before(s.since) {
		s.since = w.since
	}
	if w.last.After(s.last) {
		s.last = w.last
	}
	s.callers = append(s.callers, w.caller.String())
}

// fault is what is wrong with the callee; nil where too few of its calls are slow.
func (s *slowCallee) fault(key slowKey, h *Health, now time.Time) *v1alpha1.CallFault {
	late := s.slow + s.waiting
	if late == 0 || late*leastShare < s.fine {
		return nil
	}
	lately := s.lately.slow + s.waiting
	f := &v1alpha1.CallFault{
		Check: AppHealth, Level: level(late, late+s.fine+s.failed, lately, lately+s.lately.fine+s.lately.failed), Cluster: key.cluster, Outcome: "slow", Calls: late, Of: late + s.fine + s.failed,
		SinceUnixMs: s.since.UnixMilli(), LastUnixMs: s.last.UnixMilli(),
		Why: fmt.Sprintf("calls of %s", listed(s.callers, len(s.callers))),
		Fix: "see the log and the load of the app",
	}
	if key.callee != (catalog.App{}) {
		f.Callee = wire.App(key.callee)
	}
	what := fmt.Sprintf("%s took too long or were given up without an answer", count(s.slow, f.Of-s.waiting))
	if s.waiting > 0 {
		what = fmt.Sprintf("%d calls wait for an answer", s.waiting)
		if s.slow > 0 {
			what += fmt.Sprintf(", and %s took too long or were given up", count(s.slow, f.Of-s.waiting))
		}
	}
	in := ""
	if key.cluster != h.cfg.Cluster {
		in = inCluster(" in", key.cluster)
	}
	f.What = fmt.Sprintf("it is slow or hangs%s, for %s: %s in the last minute; %s", in, span(now.Sub(s.since)), what, f.GetWhy())
	return f
}

// mostNamed is how many apps a text names.
const mostNamed = 3

// listed names the first of so many apps.
func listed(names []string, of int) string {
	names = names[:min(len(names), mostNamed)]
	text := strings.Join(names, ", ")
	if more := of - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

package traffic

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Exemplar is a call of a trace that is sampled.
type Exemplar struct {
	At      time.Time
	TraceID [16]byte
	Took    time.Duration
}

// Exemplars are the newest by end; nil where there is none.
type Exemplars [Ends]*Exemplar

// Traced keeps a call that was counted, in place of the one before with the same end.
func (c *Counter) Traced(end End, call Exemplar) { c.traced[end].Store(&call) }

// Exemplars returns the newest calls of sampled traces.
func (c *Counter) Exemplars() (all Exemplars) {
	for end := range c.traced {
		all[end] = c.traced[end].Load()
	}
	return all
}

// Since is the message of those that were not there before.
func (x *Exemplars) Since(before *Exemplars) (all []*v1alpha1.CallExemplar) {
	for end, e := range x {
		if e != nil && e != before[end] {
			all = append(all, &v1alpha1.CallExemplar{End: uint32(end), TraceId: hex.EncodeToString(e.TraceID[:]), TookUs: uint64(max(0, e.Took.Microseconds())), AtUnixMs: e.At.UnixMilli()})
		}
	}
	return all
}

// ExemplarsFromWire reads exemplars that came at a moment: none is later.
func ExemplarsFromWire(m *v1alpha1.CallTraffic, now time.Time) (x Exemplars, err error) {
	for _, e := range m.GetExemplars() {
		id, err := hex.DecodeString(e.GetTraceId())
		if err != nil || len(id) != len(Exemplar{}.TraceID) || e.GetEnd() >= Ends {
			return x, fmt.Errorf("an exemplar of end %d with the trace ID %.40q; there are %d ends, and an ID has 32 hexadecimal digits", e.GetEnd(), e.GetTraceId(), Ends)
		}
		one := &Exemplar{At: time.UnixMilli(e.GetAtUnixMs()), TraceID: [16]byte(id), Took: time.Duration(min(e.GetTookUs(), mostTold)) * time.Microsecond}
		if one.At.After(now) {
			one.At = now // by the service's clock
		}
		x[e.GetEnd()] = one
	}
	return x, nil
}

// Take replaces those of the same ends.
func (x *Exemplars) Take(newer *Exemplars) {
	for end, e := range newer {
		if e != nil {
			x[end] = e
		}
	}
}

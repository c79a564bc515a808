package instances

import (
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// maxRefused is how many refusals of a source a Status names.
const maxRefused = 100

// Status is how a source is.
type Status struct {
	Source       string
	Ready        bool      // its full set has been in; it stays true
	Instances    int       // that stand
	Heard        time.Time // when it last said something
	Refused      []Refusal // the first hundred
	RefusedCount int       // all of them, with remarks: those are the last

	// Err is why the source can't be read just now, and Since when that began. Err is nil
	// while all is well. What stands goes on standing.
	Err   error
	Since time.Time
}

// refusals are the first hundred, and how many there are.
type refusals struct {
	first []Refusal
	count int
}

func firstOf(all []Refusal) refusals { return refusals{}.and(all, len(all)) }

// and are refusals with others after them, of which there are so many.
func (r refusals) and(others []Refusal, count int) refusals {
	first := append(r.first[:len(r.first):len(r.first)], others[:min(len(others), maxRefused-len(r.first))]...)
	return refusals{first, r.count + count}
}

// Message is the status as operators are told.
func (s Status) Message() *v1alpha1.SourceStatus {
	m := &v1alpha1.SourceStatus{Name: s.Source, Ready: s.Ready, Instances: uint32(s.Instances), RefusedCount: uint32(s.RefusedCount)}
	if s.Err != nil {
		m.Error, m.FailingUnixMs = s.Err.Error(), s.Since.UnixMilli()
	}
	for _, r := range s.Refused {
		m.Refused = append(m.Refused, &v1alpha1.RefusedObject{Source: r.Where, Error: r.Err.Error()})
	}
	return m
}

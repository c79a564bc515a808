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
	RefusedCount int       // all of them

	// Err is why the source can't be read just now, and Since when that began. Err is nil
	// while all is well. What stands goes on standing.
	Err   error
	Since time.Time
}

// Message is the status as operators are told.
func (s Status) Message() *v1alpha1.SourceStatus {
	m := &v1alpha1.SourceStatus{Name: s.Source, Ready: s.Ready, Instances: uint32(s.Instances)}
	if s.Err != nil {
		m.Error, m.FailingUnixMs = s.Err.Error(), s.Since.UnixMilli()
	}
	for _, r := range s.Refused {
		m.Refused = append(m.Refused, &v1alpha1.RefusedObject{Source: r.Where, Error: r.Err.Error()})
	}
	return m
}

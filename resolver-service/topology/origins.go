package topology

import (
	"sync/atomic"
	"time"
)

// Cause is what changed a view.
type Cause string

// The causes.
const (
	ByObject   Cause = "object"   // the config store
	ByInstance Cause = "instance" // a source of instances
	ByPeer     Cause = "peer"     // another cluster
)

// Causes returns all causes.
func Causes() []Cause { return []Cause{ByObject, ByInstance, ByPeer} }

// revisionOrigin is where a revision came from.
type revisionOrigin struct {
	revision uint64
	cause    Cause
	came     time.Time // when the service learned of it
}

// origins keeps the origins of the latest revisions, for the time that changes take. The owner's
// goroutine writes, and any may read.
type origins [256]atomic.Pointer[revisionOrigin]

// note keeps the origin of what a change has altered, before it is published.
func (o *origins) note(c *Change, updates []Update, came time.Time) {
	cause := ByPeer
	switch {
	case c.Objects != nil:
		cause = ByObject
	case len(c.Instances) > 0:
		cause = ByInstance
	case len(c.Peers) == 0:
		return
	}
	for i := range updates {
		revision := updates[i].Revision
		o[revision%uint64(len(o))].Store(&revisionOrigin{revision, cause, came})
	}
}

// Origin tells what brought a revision about, and when the service learned of that; ok is false for
// revisions that are old, or that time alone has made.
func (t *Topology) Origin(revision uint64) (cause Cause, came time.Time, ok bool) {
	o := t.origins[revision%uint64(len(t.origins))].Load()
	if o == nil || o.revision != revision {
		return "", time.Time{}, false
	}
	return o.cause, o.came, true
}

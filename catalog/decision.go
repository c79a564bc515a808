package catalog

import (
	"errors"
	"fmt"
	"strings"
)

// Outcome says how a lookup ended: with an address, or with one of five refusals.
type Outcome uint8

// The outcomes of a lookup.
const (
	OK          Outcome = iota // an address was found
	Denied                     // the caller's selection lacks the app
	NotFound                   // the cluster lacks the app; only for a caller without a selection
	Unavailable                // the app is selected, but no route has a ready instance
	Stale                      // only clusters with ended leases have it, and the selection withdraws them
	NotReady                   // the caller's view, or another cluster's answer, has not arrived yet
)

var outcomeNames = [...]string{"ok", "denied", "not found", "unavailable", "stale", "not ready"}

// String is the outcome as every part of Isthmus writes it.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// Outcomes lists every outcome.
func Outcomes() []Outcome { return []Outcome{OK, Denied, NotFound, Unavailable, Stale, NotReady} }

// ParseOutcome is the inverse of [Outcome.String].
func ParseOutcome(s string) (Outcome, error) {
	for i, name := range outcomeNames {
		if s == name {
			return Outcome(i), nil
		}
	}
	return 0, fmt.Errorf("outcome %q: want one of %s", s, strings.Join(outcomeNames[:], ", "))
}

// The five refusals, for [errors.Is].
var (
	ErrDenied      = errors.New("denied")
	ErrNotFound    = errors.New("not found")
	ErrUnavailable = errors.New("unavailable")
	ErrStale       = errors.New("stale")
	ErrNotReady    = errors.New("not ready")
)

var outcomeErrors = [...]error{nil, ErrDenied, ErrNotFound, ErrUnavailable, ErrStale, ErrNotReady}

// Decision is how one lookup ended, and why.
type Decision struct {
	Outcome  Outcome
	App      App             // that the name leads to; zero if it leads to none
	Address  string          // "ip:port" or "<host name>:port"; empty unless OK
	Cluster  string          // of the route that was taken
	Gateway  string          // the gateway host name, when the route leads through one
	Rule     string          // object and line that decided; or the default selection
	Revision uint64          // of the view that was read
	Reason   string          // one sentence for people
	Routes   []RouteDecision // every route in order of preference, and why it was taken or not
	Notes    []string        // what else is known of the two apps, for operators
}

// RouteDecision is one route of a lookup.
type RouteDecision struct {
	RouteSpec
	Ready    int  // instances ready behind it
	Taken    bool // this lookup took the route
	Reason   string
	Shards   int     // of a gateway route: host names that callers spread over
	Draining int     // instances that take no new calls
	Ramp     int     // percent of its traffic that it gets for now; 0 means all
	Peer     string  // of a route to another cluster: the state of the link, for people
	Zones    string  // of its instances, for people, if the caller prefers its own
	Unnamed  string  // through gateways: how callers without a server name go, for people
	Share    float64 // of the lookups, in percent
	Running  string  // the versions of all instances that are ready, for people
	Take     string  // of a guest's: which calls it takes, for people
	Fault    string  // why this caller's calls by it fail, for people; empty where nothing is known
}

// Err is nil for OK, and otherwise a [Refusal] with the decision's reason.
func (d *Decision) Err() error {
	if d.Outcome == OK {
		return nil
	}
	return &Refusal{Outcome: d.Outcome, Reason: d.Reason}
}

// Refusal is a lookup's error. It matches one of the five sentinel errors with
// [errors.Is] and reads the same in every edge.
type Refusal struct {
	Outcome Outcome
	Reason  string
}

// Error is "outcome: reason".
func (r *Refusal) Error() string { return r.Outcome.String() + ": " + r.Reason }

// Unwrap is the outcome's sentinel error.
func (r *Refusal) Unwrap() error {
	if int(r.Outcome) < len(outcomeErrors) {
		return outcomeErrors[r.Outcome]
	}
	return nil
}

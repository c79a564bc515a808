package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Guest says what a cluster may do that joins for a while only. It gets the calls that it takes, and
// no other.
type Guest struct {
	Until time.Time // in UTC; from then on the Cluster counts as not there
	Apps  []App     // that it may run
	Takes []Take
}

// Take names calls to an app that a guest gets before every other route. Exactly one of Caller and
// Header says which.
type Take struct {
	App    App
	Caller App         // all calls of this app; the zero value: of all callers
	Header HeaderValue // the calls with this header; the zero value: with any
}

// HeaderValue is a header of HTTP, or metadata key of gRPC, with exactly that value.
type HeaderValue struct {
	Name  string // in lower case
	Value string
}

// MaxHeaderValue bounds the value of a header.
const MaxHeaderValue = 256

// Check checks the name by [CheckHeader], and that gRPC and HTTP carry the value as it is.
func (h HeaderValue) Check() error {
	if err := CheckHeader(h.Name); err != nil {
		return fmt.Errorf("header name %w", err)
	}
	if strings.HasSuffix(h.Name, "-bin") {
		return fmt.Errorf("header %s has a value in bytes, by its ending; choose one without -bin", h.Name)
	}
	if h.Value == "" || len(h.Value) > MaxHeaderValue {
		return fmt.Errorf("header value has %d characters; it has 1 to %d", len(h.Value), MaxHeaderValue)
	}
	for i, c := range []byte(h.Value) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("header value has %q at position %d; it has visible ASCII characters only", rune(c), i+1)
		}
	}
	return nil
}

// String is "name: value"; empty for the zero value.
func (h HeaderValue) String() string {
	if h == (HeaderValue{}) {
		return ""
	}
	return h.Name + ": " + h.Value
}

// GuestAway is the state of a guest that is not heard. That is no fault: its laptop may be closed.
const GuestAway = "away"

// PeerResting is the state of a peer that is asked seldom, since nothing here leads to it.
const PeerResting = "resting"

// PeerWell tells whether a peer in a state needs nobody's attention.
func PeerWell(state string) bool {
	return state == "connected" || state == GuestAway || state == PeerResting
}

// guestUntil is when a guest ends; "-" for an ordinary cluster.
func (c *Cluster) guestUntil() string {
	if c.Guest == nil {
		return "-"
	}
	return c.Guest.Until.Format(time.RFC3339)
}

// Ended tells whether an object is a guest's whose time is over, and so counts as not there.
func Ended(object Object, now time.Time) bool {
	c, ok := object.(*Cluster)
	return ok && c.Guest != nil && !now.Before(c.Guest.Until)
}

// TakenRoute is a route to a guest, for the calls of one caller that the guest takes. It comes before
// all routes of the plan, and is none of them: whoever chooses without looking at the call, such as
// [Plan.Pick], never takes it.
type TakenRoute struct {
	Route
	Header HeaderValue // of the calls; the zero value: all calls
	Until  time.Time   // known in the service only
}

// Takes tells whether the guest takes a call with these headers, if it can.
func (t *TakenRoute) Takes(headers []HeaderValue) bool {
	return t.Header == (HeaderValue{}) || slices.Contains(headers, t.Header)
}

// Calls names the calls, for people.
func (t *TakenRoute) Calls() string {
	if t.Header == (HeaderValue{}) {
		return "all calls"
	}
	return t.Header.String()
}

// Why describes the route's state in a few words.
func (t *TakenRoute) Why(app App) string {
	if t.State == LeaseExpired {
		return "its lease has run out"
	}
	return t.Route.Why(app)
}

func (t *TakenRoute) equal(o *TakenRoute) bool {
	return t.Header == o.Header && t.Route.equal(&o.Route)
}

// sameTakes tells whether guests take the same calls of two entries.
func (e *Entry) sameTakes(o *Entry) bool {
	return slices.EqualFunc(e.Takes(), o.Takes(), func(a, b TakenRoute) bool { return a.equal(&b) })
}

// takenNow is whether some calls can go to a guest.
func (e *Entry) takenNow() bool {
	return slices.ContainsFunc(e.Takes(), func(t TakenRoute) bool { return t.Usable() })
}

// explainTakes adds to a decision the routes to guests, and has it end with the first that takes a
// call with these headers.
func (e *Entry) explainTakes(d *Decision, headers []HeaderValue) {
	var rows []RouteDecision
	taken := false
	for i := range e.Takes() {
		t := &e.Takes()[i]
		guest := "guest" + until(t.Until)
		row := RouteDecision{RouteSpec: t.RouteSpec, Ready: int(t.Ready), Draining: int(t.Draining), Take: t.Calls(), Reason: guest + "; " + t.Why(e.App)}
		switch takes := t.Takes(headers); {
		case !takes:
			d.Notes = append(d.Notes, fmt.Sprintf("calls with %s go to %s, a %s, while it can take them", t.Header, t.Cluster, guest))
		case !t.Usable():
			row.Reason += "; calls go on as without it"
		case !taken:
			taken, row.Taken, row.Share = true, true, 100
			d.Outcome, d.Cluster, d.Address = OK, t.Cluster, t.GatewayAddress()
			d.Gateway, _, _ = strings.Cut(d.Address, ":")
			d.Reason = fmt.Sprintf("%s, a %s, takes %s of the caller", t.Cluster, guest, callsWith(t))
		}
		rows = append(rows, row)
	}
	for i := range d.Routes {
		if r := &d.Routes[i]; taken && (r.Taken || r.Share > 0) {
			r.Taken, r.Share, r.Reason = false, 0, r.Reason+"; takes the call if the guest can't"
		}
	}
	d.Routes = append(rows, d.Routes...)
}

func callsWith(t *TakenRoute) string {
	if t.Header == (HeaderValue{}) {
		return t.Calls()
	}
	return "calls with " + t.Calls()
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.Format(time.RFC3339)
}

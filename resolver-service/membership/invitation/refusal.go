package invitation

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Reason says in one word why two clusters are not linked. It is the same in the command line, in
// logs and between the services.
type Reason string

// The reasons.
const (
	Malformed    Reason = "malformed"     // the string is no invitation
	Protocol     Reason = "protocol"      // the other side has said what can't be
	Version      Reason = "version"       // the other side speaks another version
	OwnCluster   Reason = "own-cluster"   // a cluster was invited by itself
	WrongName    Reason = "wrong-name"    // it is for another cluster
	OtherDomain  Reason = "domain"        // the clusters' names are under different domains
	Expired      Reason = "expired"       //
	Used         Reason = "used"          //
	Revoked      Reason = "revoked"       //
	Spent        Reason = "spent"         // five meetings failed
	Unknown      Reason = "unknown"       // no replica was found that has it
	NotHere      Reason = "not-here"      // an operator asks for one that this replica has not made
	Busy         Reason = "busy"          // another meeting is under way
	Unreachable  Reason = "unreachable"   // no gateway answers
	Intercepted  Reason = "intercepted"   // who answers is not the cluster that invites
	Altered      Reason = "altered"       // the secret, or what is said, is not what was issued
	Certificate  Reason = "certificate"   // the certificate of the accepter is not good
	Clocks       Reason = "clocks"        // a certificate is not valid now, by the clock of one side
	NotConfirmed Reason = "not-confirmed" // a person did not find the same words
	Exists       Reason = "exists"        // a Cluster object says something else
	ReadOnly     Reason = "read-only"     // the store can't be written
	Insecure     Reason = "insecure"      // this service has no identity
	NoGateway    Reason = "no-gateway"    // no address of this cluster's gateway is known
	Interrupted  Reason = "interrupted"   // the meeting broke off
	Store        Reason = "store"         // the object was not written
	OtherKind    Reason = "kind"          // it is for a guest, or it links two clusters
	NotOffered   Reason = "not-offered"   // a guest wants what it was not offered, or nobody can be
	NoSentry     Reason = "no-sentry"     // no certificate can be signed for a guest
	Unsigned     Reason = "unsigned"      // Sentry has not signed a guest's certificate
)

// advice is what every reason means, and what to do.
var advice = map[Reason]string{
	Malformed:    "this is no invitation: copy the whole string that isthmus link invite has printed",
	Protocol:     "the other side has said something that is not valid: bring both clusters to one release",
	Version:      "it is of another version of Isthmus: bring both clusters to one release, and invite again",
	OwnCluster:   "it is this cluster's own invitation: accept it in the other cluster",
	WrongName:    "it is for a cluster of another name: invite this one by its name",
	OtherDomain:  "the two clusters have different domains: make domain the same in isthmus.yaml of both",
	Expired:      "its time is over: invite again",
	Used:         "it was used already: if not by you, look at isthmus link list over there at once, and unlink; otherwise invite again",
	Revoked:      "it was revoked: ask for another one",
	Spent:        "five meetings with it have failed, so it has ended: look at the log over there, and invite again",
	Unknown:      "no replica that was reached has it: it is past, its replica has restarted, or the load balancer leads to another replica; invite again, with --gateway for that replica's own address if need be",
	NotHere:      "each replica knows its own invitations, and isthmus link list shows them: ask the one that made it, or wait until its time is over",
	Busy:         "another meeting with it is under way: wait, or revoke it if that is not yours",
	Unreachable:  "no gateway of the invitation answers: see that one runs there and is reachable from here, or invite again with --gateway",
	Intercepted:  "the end of this connection is not the cluster that invites: something on the way ends TLS, or the gateway's address is another cluster's; nothing was told to it",
	Altered:      "its secret or another part is not what was issued: ask for the string again, over a channel that nobody alters",
	Certificate:  "the certificate that was shown is not the one of that cluster's resolver service",
	Clocks:       "set the clocks of both clusters, by NTP for example; where they agree, isthmus trust shows whose certificate was not renewed",
	NotConfirmed: "a person did not confirm the four words: if they differ, somebody is in between; invite again over another channel",
	Exists:       "a Cluster object of that name says something else: compare, then repeat with --replace",
	ReadOnly:     "the store can't be written by this service: repeat with --out, and apply the object where objects come from",
	Insecure:     "this service has identity: insecure, and can't prove itself: give it an identity",
	NoGateway:    "no address is known where other clusters reach this gateway: name it by --gateway host:port, or in isthmus.yaml, gateway.advertise; in Kubernetes, kubectl get service has it",
	Interrupted:  "the meeting broke off: try again",
	Store:        "the object was not written",
	OtherKind:    "isthmus dev join takes what isthmus dev invite has printed, and isthmus link accept what isthmus link invite has",
	NotOffered:   "a guest may be only what its invitation says: see isthmus dev join --show, or have isthmus dev invite say more",
	NoSentry:     "this service can't have certificates signed for a guest: see identity.sentry and guests.key of isthmus.yaml",
	Unsigned:     "the Sentry of the cluster that invites has signed no certificate, and the log of its service says why; the invitation is still good",
}

// Refusal is why two clusters are not linked.
type Refusal struct {
	Reason Reason
	Detail string // more about this one; may be empty
	There  bool   // the other side has refused
}

func refuse(r Reason, detail string) *Refusal { return &Refusal{Reason: r, Detail: detail} }

func refusef(r Reason, format string, args ...any) *Refusal {
	return refuse(r, fmt.Sprintf(format, args...))
}

// refusedThere is what the other side has said. A word that it can't have is never shown.
func refusedThere(word string) *Refusal {
	r := Reason(word)
	if _, known := advice[r]; !known {
		r = Interrupted
	}
	return &Refusal{Reason: r, There: true}
}

// Error says where, why and what to do.
func (r *Refusal) Error() string {
	text := "link refused"
	if r.There {
		text += " by the other cluster"
	}
	text += " (" + string(r.Reason) + "): "
	if r.Detail != "" {
		text += r.Detail + "; "
	}
	return text + advice[r.Reason]
}

// GRPCStatus is the refusal as an error of a call.
func (r *Refusal) GRPCStatus() *status.Status {
	code := codes.FailedPrecondition
	switch r.Reason {
	case Malformed, Version, OwnCluster, WrongName:
		code = codes.InvalidArgument
	case Unknown, NotHere:
		code = codes.NotFound
	}
	return status.New(code, r.Error())
}

// reasonOf is the refusal in an error, or the meeting's end.
func reasonOf(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	if s, ok := status.FromError(err); ok {
		return refuse(Interrupted, s.Message())
	}
	return refuse(Interrupted, err.Error())
}

// distrust is the refusal for a certificate that was not accepted. One that is not valid now tells
// of the clocks, and so does the other side by its own.
func distrust(err error, otherwise Reason, clocks string) *Refusal {
	if err == nil {
		err = errors.New("it names no root")
	}
	if untimely := (*identity.Untimely)(nil); errors.As(err, &untimely) {
		otherwise = Clocks
	}
	r := refuse(otherwise, catalog.Printable(err.Error()))
	if otherwise == Clocks && clocks != "" {
		r.Detail += "; " + clocks
	}
	return r
}

// maxSkew is by how much clocks may differ without a word.
const maxSkew = time.Minute

// clocks says how the clock of the other side differs from this one's; empty if it hardly does, or
// if that side has not told.
func (s *Server) clocks(theirs int64) string {
	ahead := time.UnixMilli(theirs).Sub(s.cfg.Now()).Round(time.Second)
	switch {
	case theirs == 0 || ahead.Abs() <= maxSkew:
		return ""
	case ahead < 0:
		return fmt.Sprintf("the clock there is %s behind this one's", ahead.Abs())
	}
	return fmt.Sprintf("the clock there is %s ahead of this one's", ahead)
}
